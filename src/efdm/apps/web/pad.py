"""The mixing pad: a square with a style in each corner and a point that weights them, as HTML, CSS and JavaScript."""

from __future__ import annotations

from collections.abc import Sequence

HTML = """
<div class="corner" style="left:8px;top:6px">${value.names[0] || ""}</div>
<div class="corner" style="right:8px;top:6px">${value.names[1] || ""}</div>
<div class="corner" style="left:8px;bottom:6px">${value.names[2] || ""}</div>
<div class="corner" style="right:8px;bottom:6px">${value.names[3] || ""}</div>
<div class="dot" style="left:${100 * value.x}%;top:${100 * value.y}%"></div>
"""

CSS = """
position: relative; width: min(220px, 100%); aspect-ratio: 1; border-radius: 8px; cursor: crosshair; touch-action: none;
background: linear-gradient(135deg, #8884, #8881 45%, #8881 55%, #8884); border: 1px solid #8888; user-select: none;
.corner { position: absolute; font-size: 13px; max-width: 45%; overflow: hidden; text-overflow: ellipsis; }
.dot {
  position: absolute; width: 18px; height: 18px; margin: -9px; border-radius: 50%; background: #f97316;
  border: 2px solid white; box-shadow: 0 1px 3px #0008; pointer-events: none;
}
"""

# the pad is its root element, because the template inside is rendered again with every move
SCRIPT = """
const clamp = v => Math.round(1000 * Math.min(1, Math.max(0, v))) / 1000;
const move = (x, y) => { props.value = {...props.value, x: clamp(x), y: clamp(y)}; };
const follow = event => {
  const box = element.getBoundingClientRect();
  move((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
};
const steps = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
element.tabIndex = 0;
element.setAttribute("role", "application");
element.setAttribute("aria-label", "Mixing pad: drag the point, or move it with the arrow keys");
element.addEventListener("pointerdown", event => { element.setPointerCapture(event.pointerId); follow(event); });
element.addEventListener("pointermove", event => { if (event.buttons) follow(event); });
element.addEventListener("keydown", event => {
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  move(props.value.x + step[0] / 20, props.value.y + step[1] / 20);
});
"""


def pad_value(names: Sequence[str], x: float = 0.5, y: float = 0.5) -> dict[str, object]:
    """Return the value of the pad."""
    return {"names": list(names), "x": x, "y": y}
