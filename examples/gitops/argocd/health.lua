-- Health of a paternoster.dev/LLMDeployment in Argo CD.
-- Lua 5.1, base library only: Argo CD opens neither string nor math.

local function health(status, message)
  return { status = status, message = message or "" }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "is being deleted")
end

if obj.spec ~= nil and obj.spec.paused == true then
  return health("Suspended", "spec.paused is true")
end

-- The CRD gives a new object observedGeneration -1, so it never looks finished before the operator saw it.
local status = obj.status or {}
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "waiting for the operator to see the latest spec")
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, reconciling, stalled = conditions.Ready, conditions.Reconciling, conditions.Stalled

-- Stalled before Ready: a fleet that serves and cannot reach its spec needs a person.
if stalled ~= nil and stalled.status == "True" then
  return health("Degraded", stalled.message)
end

if ready == nil then
  return health("Progressing", "waiting for the condition Ready")
end

if ready.status == "True" then
  -- Scaling up, draining and a replica that ends are daily life of a fleet; a rollout is somebody's change.
  local daily = {
    ScalingUp = true, Draining = true, EngineRestarted = true, ReplicaReplaced = true, ReplicaNotReady = true
  }
  local moving = reconciling ~= nil and reconciling.status == "True"
  if moving and not daily[reconciling.reason] then
    return health("Progressing", reconciling.message)
  end
  return health("Healthy", ready.message)
end

if ready.status == "False" then
  return health("Degraded", ready.message)
end

return health("Progressing", ready.message)
