-- what XINFO answers, which is names and values in turn
local function by_name(fields)
  local values = {}
  for i = 1, #fields, 2 do values[fields[i]] = fields[i + 1] end
  return values
end
