"""How Sphinx builds the pages of this folder into one that opens offline: `make docs`."""

import tosaic

project, author = "tosaic", "the authors of tosaic"
release = version = tosaic.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"]
myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["README.md"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px", "show_powered_by": False}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_show_sourcelink = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
