"""Proposes candidates by Optuna's tree-structured Parzen estimator; a process of its own (proposer.h).

The first line tells all points, {"points": {id: {setting: value}}}; its answer is {"optuna": version} or
{"error": text}. Each further line asks for some, {"tried": [[id, gain or null]], "among": [id], "count",
"seed"}; its answer is {"proposed": [id]}. Every question is answered from itself alone, so
that a sweep that goes on proposes what it would have proposed.
"""

import json
import random
import sys

ASKS_PER_PROPOSAL = 20


def grid(points):
    """The values of each setting; a point that does not name a setting has its default, ""."""
    keys = sorted({key for point in points.values() for key in point})
    return {key: sorted({point.get(key, "") for point in points.values()}) for key in keys}


def nearest(params, names, points, draw):
    """One of those points that have the most settings in common with `params`, drawn by `draw`."""
    common = {name: sum(points[name].get(key, "") == value for key, value in params.items()) for name in names}
    most = max(common.values())
    return draw.choice(sorted(name for name in names if common[name] == most))


def propose(optuna, points, tried, among, count, seed):
    axes = {key: optuna.distributions.CategoricalDistribution(values)
            for key, values in grid(points).items()}
    places = {tuple(point.get(key, "") for key in axes): name for name, point in points.items()}
    sampler = optuna.samplers.TPESampler(seed=seed + len(tried), multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    gains = {}
    for name, gain in tried:
        if gain is None:
            continue
        gains[name] = gain
        params = {key: points[name].get(key, "") for key in axes}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=axes, value=gain))
    waiting, proposed = set(among), []
    draw = random.Random(seed + len(tried))
    for _ in range(ASKS_PER_PROPOSAL * count):
        if len(proposed) == count or not waiting:
            return proposed
        trial = study.ask(axes)
        name = places.get(tuple(trial.params[key] for key in axes))
        if name in gains:
            study.tell(trial, gains[name])
            continue
        if name not in waiting:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        if name is None:  # it cannot run here, or is none of those drawn from a space too large to list
            name = nearest(trial.params, waiting, points, draw)
        if name in waiting:
            waiting.remove(name)
            proposed.append(name)
    rest = sorted(waiting)  # the model proposes what is known: the others are as good as any
    return proposed + draw.sample(rest, min(count - len(proposed), len(rest)))


def main():
    first = json.loads(sys.stdin.readline())
    try:
        import optuna
    except ImportError as problem:
        print(json.dumps({"error": str(problem)}), flush=True)
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    import warnings
    warnings.simplefilter("ignore")  # optuna's notices of experimental options
    points = {int(name): point for name, point in first["points"].items()}
    print(json.dumps({"optuna": optuna.__version__}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        proposed = propose(optuna, points, **asked)
        print(json.dumps({"proposed": proposed}), flush=True)


if __name__ == "__main__":
    main()
