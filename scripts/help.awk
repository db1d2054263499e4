# Lists the commands of a Makefile: "##@ heading" lines and "target: ... ## what it does" lines.
/^##@ / { printf "\n%s\n", substr($0, 5); next }
/^[a-z][a-z-]*:.*## / {
    target = $0; sub(/:.*/, "", target)
    text = $0; sub(/^.*## /, "", text)
    printf "  make %-15s %s\n", target, text
}
