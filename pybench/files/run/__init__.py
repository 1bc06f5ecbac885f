"""A run's folder and the files in it.

| module | holds |
|---|---|
| `folder` | the folder, its lock, its manifest, its attempts and its reports |
| `manifest_rules` | joint rules of a manifest's values |
| `journal` | the records, one a line |
| `results_file` | results, judged anew or kept |
"""
