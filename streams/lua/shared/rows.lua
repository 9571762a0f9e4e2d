-- the values of the i-th row of ARGV: each row is `width` values long, the first follows the
-- `fixed` values before
local function row(i, fixed, width)
  local at = fixed + (i - 1) * width
  return unpack(ARGV, at + 1, at + width)
end
