//! Rules for shell scripts.

use crate::Violations;
use crate::tree::{File, Tree};

/// No pipe ends in `grep -q`. It stops at the first match, and with `pipefail` a writer that isn't done by
/// then fails the whole pipe, so a test fails now and then although it found what it looked for.
pub fn early_ends(tree: &Tree) -> Violations {
    let mut violations = Vec::new();
    for file in tree.files().filter(|file| is_script(file)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let early = line.replace("||", "&&").split('|').skip(1).any(|command| {
                let mut words = command.split_whitespace();
                words.next() == Some("grep") && words.take_while(|word| word.starts_with('-')).any(is_quiet)
            });
            if early {
                violations.push(format!(
                    "{}:{number}: `| grep -q` stops before its writer is done; use `| has` or `<<<`",
                    file.path
                ));
            }
        }
    }
    violations
}

fn is_script(file: &File) -> bool {
    file.extension() == "sh" || file.text.starts_with("#!/usr/bin/env bash")
}

/// Whether an option makes grep quiet, alone or together with others, such as `-q`, `-Eq` or `--quiet`.
fn is_quiet(option: &str) -> bool {
    option == "--quiet" || (!option.starts_with("--") && option.contains('q'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        early_ends(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_pipe_that_ends_in_a_quiet_grep_is_found() {
        assert_eq!(found("tests/a/run", "#!/usr/bin/env bash\nkube get pods | grep -q one\n"), 1);
        assert_eq!(found("tests/a.sh", "kube get pods | tr a b | grep -E -qx one || fail 'none'\n"), 1);
        assert_eq!(found("tests/a.sh", "await 60 eval \"! of one | grep --quiet .\"\n"), 1);
    }

    #[test]
    fn other_uses_of_grep_are_not() {
        assert_eq!(found("tests/a.sh", "kube get pods | grep -v queue || grep -q one file\n"), 0);
        assert_eq!(
            found("tests/a.sh", "kube get pods | has -q one\ngrep -q one <<<\"$(kube get pods)\"\n"),
            0
        );
        assert_eq!(found("docs/a.md", "kube get pods | grep -q one\n"), 0);
    }
}
