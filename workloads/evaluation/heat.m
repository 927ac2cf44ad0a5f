% Heat in a plate that is warmed at its centre, step by step: `octave heat.m STEPS`. The factor is used in each step,
% the matrix itself only before.
steps = str2double(argv(){1});
n = 300;
e = ones(n, 1);
line = spdiags([-e, 2 * e, -e], -1:1, n, n);
plate = speye(n ^ 2) + 50 * (kron(line, speye(n)) + kron(speye(n), line));
[factor, ~, order] = chol(plate, "lower", "vector");
heat = zeros(n ^ 2, 1);
source = zeros(n ^ 2, 1);
source(n ^ 2 / 2 + n / 2) = 1;
for step = 1:steps
  heat(order) = factor' \ (factor \ (heat + source)(order));
end
printf("heat: %.6f\n", sum(heat));
