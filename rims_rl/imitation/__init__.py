"""Behaviour cloning from pictures: an expert is watched, and networks with different memories learn to do as it does.

``expert`` says who is imitated, ``trajectories`` what was seen of it, ``network`` who learns, ``task`` how, ``job`` and
``experiment`` how often, and ``imitation_page`` what came out.
"""
