"""A run's folder and the files in it.

| module | holds |
|---|---|
| `folder` | the folder, its attempts and its reports |
| `manifest_file`, `manifest_rules` | what is measured and where, and what its values satisfy together |
| `journal`, `journal_line` | the records, one a line |
| `results_file` | results, judged anew or kept |
| `lock` | one writer, or those that copy |
| `earlier_runs` | other runs of the machine |
| `errors` | what the system refuses, in words |
"""
