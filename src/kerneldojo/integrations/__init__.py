"""Others' conventions, each a thin adapter over `kerneldojo.episodes`: OpenEnv's wire, a verifiers taskset, TRL.

`openenv` belongs to the service and needs nothing of theirs; neither does `trl`, for TRL only asks for the shape of a
class; `verifiers` subclasses theirs, so importing it needs their package. None of them is a dependency of ours.
"""
