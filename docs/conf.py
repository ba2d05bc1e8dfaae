"""How Sphinx builds the site: ``make docs``, offline, with warnings as errors."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from command_reference import write_command_reference  # noqa: E402

from rims_rl import __version__  # noqa: E402

project, author, copyright = "rims-rl", "rims-rl contributors", "rims-rl contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "agents"]  # cards of trained agents are no pages
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

html_math_renderer = "mathml"  # every browser knows it, and nothing has to be fetched

write_command_reference(DOCS / "reference" / "commands.md")


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


def _mathml(node: Any, as_block: bool) -> str:
    """docutils knows most of TeX; what it does not know changes how equations look, and not what they say."""
    tex = re.sub(r"\\(big|textstyle)\b", "", node.astext())
    tex = tex.replace(r"\begin{array}{ll}", r"\begin{matrix}").replace(r"\end{array}", r"\end{matrix}")
    return tex2mathml(tex, as_block=as_block)


def _inline(writer: Any, node: Any) -> None:
    writer.body.append(_mathml(node, as_block=False))
    raise SkipNode


def _block(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{_mathml(node, as_block=True)}</div>')
    raise SkipNode
