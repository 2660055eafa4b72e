# Fills the tables of a README from variables.tf and outputs.tf. `base` is the README's folder.
#
# Relies on the form of those files: one line for a description, two spaces before a field, `}` alone at the end.

function text(line) { sub(/^[^"]*"/, "", line); sub(/"$/, "", line); gsub(/\\"/, "\"", line); gsub(/\|/, "\\|", line); return line }

function table(kind, folder,    file, line, name, description, fallback, required) {
    file = base "/" folder "/" kind ".tf"
    print kind == "variables" ? "| variable | default | meaning |\n|---|---|---|" : "| output | meaning |\n|---|---|"
    while ((getline line < file) > 0) {
        if (line ~ /^(variable|output) "/) { split(line, part, "\""); name = part[2]; description = ""; fallback = "(required)" }
        else if (line ~ /^  description += /) description = text(line)
        else if (line ~ /^  default += /) {
            sub(/^  default += /, "", line)
            fallback = line ~ /[{[]$/ || length(line) > 36 ? "(see the file)" : "`" line "`"
        }
        else if (line ~ /^}/ && name != "") {
            if (kind == "variables") print "| `" name "` | " fallback " | " description " |"
            else print "| `" name "` | " description " |"
            name = ""
        }
    }
    close(file)
}

/^<!-- (variables|outputs) .* -->$/ { print; print ""; table($2, $3); print ""; skipping = 1; next }
/^<!-- end -->$/ { skipping = 0 }
!skipping { print }
