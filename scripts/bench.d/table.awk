# Prints a table of results.tsv (column, row, value) and goals.tsv, as text or, with -v markdown=1, as Markdown.
# -v storages="embedded etcd" selects the columns beside the floor. Goals without a measured row are listed after
# the table.

BEGIN {
    FS = "\t"
    columns = split(storages, storage, " ")
}

FILENAME ~ /goals\.tsv$/ {
    if ($0 !~ /^#/) {
        goals[++goal_count] = $1
        stock[$1] = $2
        goal["embedded", $1] = $3
        goal["etcd", $1] = $4
    }
    next
}

{
    if (!($2 in known)) {
        known[$2] = 1
        rows[++row_count] = $2
    }
    value[$1, $2] = $3
}

# Returns the bound of a goal in a column; "" if the value that it is relative to was not measured.
function bound(column, row, text,    words, other, base) {
    split(text, words, " ")
    if (words[3] == "") {
        return words[2]
    }
    other = text
    sub(/^[^ ]+ [^ ]+ [^ ]+ /, "", other)
    if (other == "floor") {
        base = value["floor", row]
    } else {
        base = value[column, other]
    }
    if (base + 0 == 0) {
        return ""
    }
    return words[3] == "x" ? words[2] * base : words[2] + base
}

# Sets limit, the goal of a row in a column, and verdict, whether the value reaches it.
function judge(column, row,    text, at, it) {
    limit = "-"
    verdict = "-"
    text = goal[column, row]
    if (text == "" || text == "-") {
        return
    }
    at = bound(column, row, text)
    it = value[column, row]
    if (at == "" || it == "" || it == "-") {
        verdict = "not measured"
        return
    }
    limit = substr(text, 1, 2) " " sprintf(at >= 1000 ? "%.0f" : "%.4g", at)
    verdict = (substr(text, 1, 2) == "<=" ? it + 0 <= at + 0 : it + 0 >= at + 0) ? "reached" : "MISSED"
    judged++
    reached += verdict == "reached"
}

# Returns 1 if a column of the table has a goal for the row.
function has_goal(row,    n) {
    for (n = 1; n <= columns; n++) {
        if (goal[storage[n], row] != "-") {
            return 1
        }
    }
    return 0
}

function cell(column, row) {
    return (column, row) in value ? value[column, row] : "-"
}

function text_row(row,    n) {
    printf "%-70s %9s", row, cell("floor", row)
    for (n = 1; n <= columns; n++) {
        judge(storage[n], row)
        printf " %12s %12s %-12s", cell(storage[n], row), limit, verdict
    }
    printf "\n"
}

function markdown_row(row,    n) {
    printf "| %s | %s | %s |", row, row in stock ? stock[row] : "-", cell("floor", row)
    for (n = 1; n <= columns; n++) {
        judge(storage[n], row)
        printf " %s | %s | %s |", cell(storage[n], row), limit, verdict == "MISSED" ? "**MISSED**" : verdict
    }
    printf "\n"
}

function head(    n) {
    if (markdown) {
        printf "| row | kube-apiserver | floor |"
        for (n = 1; n <= columns; n++) {
            printf " %s | goal | |", storage[n]
        }
        printf "\n|---|---|---|"
        for (n = 1; n <= columns; n++) {
            printf "---|---|---|"
        }
        printf "\n"
        return
    }
    printf "%-70s %9s", "", "floor"
    for (n = 1; n <= columns; n++) {
        printf " %12s %12s %-12s", storage[n], "goal", ""
    }
    printf "\n"
}

END {
    head()
    for (n = 1; n <= row_count; n++) {
        if (markdown) {
            markdown_row(rows[n])
        } else {
            text_row(rows[n])
        }
    }
    printf "\n%d of %d goals are reached.\n", reached, judged
    for (n = 1; n <= goal_count; n++) {
        if (!(goals[n] in known) && has_goal(goals[n])) {
            printf "Not measured: %s\n", goals[n]
        }
    }
}
