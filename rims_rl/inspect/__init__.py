"""Looking inside: ``play`` plays a policy and watches its RIMs, ``record`` keeps that in the file of ``recording``,
``page`` makes one HTML file of it from ``page.html``, ``page.css`` and ``page.js``, ``analysis`` and ``information``
make statistics and pictures, and ``overlay`` draws into videos."""
