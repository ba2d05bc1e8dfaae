"""Jobs: trainings that are run once, here or elsewhere, and survive being killed. ``job`` says what one is,
``experiment`` is several of them with their folders, ``engines`` run them, ``status`` says how far they are, and
``estimate`` how long they would take. What is trained is not known here: agents are in ``suites``, supervised tasks in
``supervised``."""
