"""Looking inside: ``play`` plays a policy and watches its RIMs, ``record`` keeps that in the file of ``recording``,
``inspection_page`` makes one HTML file of it from what is in ``page/``, ``analysis`` and ``information``
make statistics and pictures, and ``overlay`` draws into videos."""
