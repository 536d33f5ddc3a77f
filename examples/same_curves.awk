# Prints loss curves side by side, one step a line, and holds all to the first, to `within` relative:
#   awk -v within=1e-5 -f same_curves.awk NAME=metrics.jsonl NAME=metrics.jsonl …
# The files are what `tessera train --metrics` writes. Exits with 1 if a curve differs.
BEGIN {
  for (file = 1; file < ARGC; ++file) {
    at = match(ARGV[file], /=[^=]*$/)
    word[1] = substr(ARGV[file], 1, at - 1)
    word[2] = substr(ARGV[file], at + 1)
    names[file] = word[1]
    count[file] = 0
    while ((getline line < word[2]) > 0) {
      sub(/.*"loss":/, "", line)
      sub(/[,}].*/, "", line)
      losses[file, ++count[file]] = line + 0
    }
    printf "%s%*s", (file == 1 ? "step" : ""), 2 + (length(word[1]) > 9 ? length(word[1]) : 9), word[1]
  }
  print ""
  steps = count[1]
  every = int((steps + 19) / 20)
  for (step = 1; step <= steps; ++step) {
    shown = (step - 1) % every == 0 || step == steps
    if (shown) printf "%4d", step
    for (file = 1; file < ARGC; ++file) {
      if (shown) printf "%*.6f", 2 + (length(names[file]) > 9 ? length(names[file]) : 9), losses[file, step]
      off = losses[file, step] / losses[1, step] - 1
      if (off < 0) off = -off
      if (off > worst) worst = off
    }
    if (shown) print ""
  }
  good = steps > 0 && worst <= within
  for (file = 2; file < ARGC; ++file) good = good && count[file] == steps
  printf "largest difference: %.1e relative, %s\n", worst, good ? "as allowed (" within ")" : "more than " within
  exit !good
}
