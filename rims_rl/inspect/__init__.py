"""Looking inside: ``record`` plays a policy and watches its RIMs, ``recording`` is the file that comes out, and
``page`` makes one HTML file of it from ``page.html``, ``page.css`` and ``page.js``."""
