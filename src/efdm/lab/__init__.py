"""From a recipe to a table: `load_recipe`, `run`, `read_study`, `tables`, `render`."""

from efdm.errors import requires

with requires("dg"):
    import scipy  # noqa: F401  (tables need it; if it is missing, fail before the runs rather than after)

    from efdm.lab.folder import Study, read_study
    from efdm.lab.pacs import NOISE_CONTRASTS, PACS_MOBILENETV2, PACS_PAPER, PACS_RESNET18, STABLE, pacs_resnet
    from efdm.lab.plan import expand
    from efdm.lab.published import LABEL_ORDERS, ORDERS, PUBLISHED, Published
    from efdm.lab.recipe import Recipe, load_recipe, recipes
    from efdm.lab.rendering import FORMATS, render
    from efdm.lab.report import accuracy_table, comparison_table, summary_table, tables
    from efdm.lab.selection import SELECTIONS
    from efdm.lab.sweep import load_data, run

__all__ = [
    "FORMATS", "LABEL_ORDERS", "NOISE_CONTRASTS", "ORDERS", "PACS_MOBILENETV2", "PACS_PAPER", "PACS_RESNET18", "PUBLISHED",
    "SELECTIONS", "STABLE", "Published", "Recipe", "Study", "accuracy_table", "comparison_table", "expand", "load_data",
    "load_recipe", "pacs_resnet", "read_study", "recipes", "render", "run", "summary_table", "tables",
]  # fmt: skip
