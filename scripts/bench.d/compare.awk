# Prints a table of two servers from results.tsv (column, row, value), as text or, with -v markdown=1, as Markdown.
# -v storage=etcd is the column of watchet; that of the other server is `other`. The ratio is how many times better
# watchet is: of rates its value divided by the other's, else the other's divided by its own.

BEGIN {
    FS = "\t"
}

{
    if (!($2 in known)) {
        known[$2] = 1
        rows[++row_count] = $2
    }
    value[$1, $2] = $3
}

function cell(column, row) {
    return (column, row) in value ? value[column, row] : "-"
}

# Returns the ratio of a row; "-" if a server does not have it.
function ratio(row,    ours, others) {
    ours = value[storage, row] + 0
    others = value["other", row] + 0
    if (ours <= 0 || others <= 0) {
        return "-"
    }
    return sprintf("%.1f", row ~ /: (deliveries )?per second/ ? ours / others : others / ours)
}

END {
    if (markdown) {
        printf "| row | floor | watchet, %s | other | ratio |\n|---|---|---|---|---|\n", storage
    } else {
        printf "%-70s %12s %12s %12s %8s\n", "", "floor", "watchet", "other", "ratio"
    }
    for (n = 1; n <= row_count; n++) {
        row = rows[n]
        format = markdown ? "| %s | %s | %s | %s | %s |\n" : "%-70s %12s %12s %12s %8s\n"
        printf format, row, cell("floor", row), cell(storage, row), cell("other", row), ratio(row)
    }
}
