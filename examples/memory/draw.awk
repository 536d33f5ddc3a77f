# Draws memory plans (NAME=FILE of tessera train --memory-plan) as one SVG: what each holds in all, over the operations
# of a step.
BEGIN {
  width = 960; height = 420; left = 70; top = 30; bottom = 40; right = 190
  split("#1b4965 #d1495b #66a182 #edae49 #8d6a9f #5c6b73", colours, " ")
  for (n = 1; n < ARGC; ++n) {
    at = index(ARGV[n], "=")
    names[n] = substr(ARGV[n], 1, at - 1)
    file = substr(ARGV[n], at + 1)
    while ((getline line < file) > 0) {
      if (line !~ /"ph":"C"/) continue
      sum = 0
      for (rest = line; match(rest, /"(states|activations|gradients|buffers)":[0-9]+/);
           rest = substr(rest, RSTART + RLENGTH)) {
        pair = substr(rest, RSTART, RLENGTH)
        sum += substr(pair, index(pair, ":") + 1)
      }
      held[n, ++count[n]] = sum
      if (sum > most) most = sum
    }
    close(file)
  }
  gigabytes = most / 1e9
  tick = 1
  while (gigabytes / tick > 6) tick *= (tick ~ /^2/ ? 2.5 : 2)
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n", width, height
  printf "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", width, height
  inner = width - left - right; tall = height - top - bottom
  for (value = 0; value <= gigabytes; value += tick) {
    y = top + tall * (1 - value / gigabytes)
    printf "<path d=\"M%d %.1fH%d\" stroke=\"#dddddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g GB</text>\n", left, y, width - right, left - 8, y + 4, value
  }
  printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">one step, from its first operation to its last</text>\n", left + inner / 2, height - 12
  points = 400
  for (n = 1; n < ARGC; ++n) {
    path = ""
    # The most of each stretch of operations, so that no peak is lost.
    for (p = 0; p < points; ++p) {
      from = int(p * count[n] / points) + 1; to = int((p + 1) * count[n] / points)
      if (to < from) to = from
      value = 0
      for (i = from; i <= to; ++i) if (held[n, i] > value) value = held[n, i]
      path = path sprintf("%s%.1f %.1f", p ? "L" : "M", left + inner * p / points, top + tall * (1 - value / most))
    }
    printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"/>\n", path, colours[n]
    printf "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", width - right + 12, top + 20 * n, colours[n], names[n]
  }
  print "</svg>"
}
