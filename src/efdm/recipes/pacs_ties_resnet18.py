"""PACS, leave one domain out, ResNet-18: does the order among equal values matter?

claim     the tie rules give similar accuracies, so the fastest can be used.
command   efdm dg run pacs_ties_resnet18 --data PACS --weights resnet18.safetensors -o runs/ties18 --lanes 4
time      not measured
expected  no significant difference; the paper shows a figure without numbers
runs      60 (3 methods x 4 domains x 5 seeds)

The stages of ResNet-18 end with a ReLU, so most channels have many zeros. efdmix leaves the order of equal values to the
kernel ("fast"). The kernels sort equal values by position, which is the rule "stable", so efdmix-stable would equal efdmix
bit for bit and is left out.

All other settings and a third of the runs are those of pacs_leave_one_out_resnet18: copy its records.jsonl into the folder
first, and these runs are not repeated.
"""

from efdm.lab import pacs_resnet

recipe = pacs_resnet(
    18,
    "leave-one-out",
    ["efdmix", "efdmix-random", "efdmix-neighbor"],
    contrasts=(("efdmix", "efdmix-random"), ("efdmix", "efdmix-neighbor")),
    published=(),
    notes=("efdmix-stable would equal efdmix bit for bit: the kernels sort equal values by position.",),
)
