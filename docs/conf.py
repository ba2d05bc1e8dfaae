"""How Sphinx builds the site: ``make docs``, offline, with warnings as errors."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from command_reference import write_command_reference  # noqa: E402

from rims_rl import __version__  # noqa: E402

project, author, copyright = "rims-rl", "rims-rl contributors", "rims-rl contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
highlight_language = "none"  # of blocks that do not say what they are

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"rims-rl {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

write_command_reference(DOCS / "reference" / "commands.md")
