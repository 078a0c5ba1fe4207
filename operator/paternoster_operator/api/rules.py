"""Rules between fields, in CEL: one list for the schema and for checking a manifest without a cluster."""

from paternoster_operator.api.names import NAME_PATTERN
from paternoster_operator.api.pod.owned import POD_TEMPLATE_RULES
from paternoster_operator.api.rule import Rule
from paternoster_operator.api.runtime_rules import RUNTIME_RULES
from paternoster_operator.api.target_rules import TARGET_RULES
from paternoster_operator.api.types.model import FETCHED, IMAGE, REMOTE

_NO_ADAPTERS = "!has(self.adapters) || size(self.adapters) == 0"
_EACH_SCHEDULE = "!has(self.autoscaling) || !has(self.autoscaling.schedules) || self.autoscaling.schedules.all"

SPEC_RULES: tuple[Rule, ...] = (
    Rule(
        "!self.model.source.matches('^pvc://(.*/)?[.]{1,2}(/|$)')",
        "model.source must name a path on its claim without '.' and '..'",
        "model.source",
    ),
    Rule(
        f"!has(self.model.cache) || self.model.source.matches('{REMOTE}')",
        f"model.cache must be unset unless model.source is {FETCHED}, which are fetched",
        "model.cache",
    ),
    Rule(
        "!has(self.model.credentialsSecretRef) || "
        f"self.model.source.matches('{REMOTE}') || self.model.source.matches('{IMAGE}')",
        f"model.credentialsSecretRef must be unset unless model.source is {FETCHED}, which are fetched, or oci://",
        "model.credentialsSecretRef",
    ),
    Rule(
        f"!has(self.model.imagePullPolicy) || self.model.source.matches('{IMAGE}')",
        "model.imagePullPolicy must be unset unless model.source is oci://, which the node pulls",
        "model.imagePullPolicy",
    ),
    Rule(
        "!has(self.model.cache) || (has(self.model.cache.emptyDir) ? 1 : 0) + (has(self.model.cache.hostPath) ? 1 : 0)"
        " + (has(self.model.cache.claim) ? 1 : 0) == 1",
        "model.cache must have exactly one of emptyDir, hostPath and claim",
        "model.cache",
    ),
    Rule(
        "!has(self.model.cache) || !has(self.model.cache.hostPath) || "
        "!self.model.cache.hostPath.path.matches('/[.]{1,2}(/|$)')",
        "model.cache.hostPath.path must have no '.' and no '..'",
        "model.cache.hostPath.path",
    ),
    Rule(
        "!has(self.replicas) || !has(self.autoscaling) || self.autoscaling.mode == 'External'",
        "replicas must be unset with autoscaling, unless its mode is External: use minReplicas and maxReplicas",
        "replicas",
    ),
    Rule(
        "!has(self.autoscaling) || self.autoscaling.mode != 'External' || has(self.replicas)",
        "replicas must be set when autoscaling.mode is External: it is what /scale writes",
        "replicas",
    ),
    Rule(
        "!has(self.autoscaling) || self.autoscaling.minReplicas <= self.autoscaling.maxReplicas",
        "autoscaling.minReplicas must be at most autoscaling.maxReplicas",
        "autoscaling.minReplicas",
    ),
    Rule(
        "!has(self.autoscaling) || (self.autoscaling.minReplicas == 0) == self.autoscaling.scaleToZero.enabled",
        "autoscaling.minReplicas must be 0 if autoscaling.scaleToZero.enabled is true, and at least 1 if not",
        "autoscaling.minReplicas",
    ),
    Rule(
        f"{_EACH_SCHEDULE}(s, self.autoscaling.schedules.exists_one(t, t.name == s.name))",
        "each of autoscaling.schedules must have a name of its own",
        "autoscaling.schedules",
    ),
    Rule(
        f"{_EACH_SCHEDULE}(s, has(s.minReplicas) || has(s.maxReplicas))",
        "each of autoscaling.schedules must set minReplicas, maxReplicas or both",
        "autoscaling.schedules",
    ),
    Rule(
        f"{_EACH_SCHEDULE}(s, !has(s.minReplicas) || !has(s.maxReplicas) || s.minReplicas <= s.maxReplicas)",
        "minReplicas of each of autoscaling.schedules must be at most its maxReplicas",
        "autoscaling.schedules",
    ),
    Rule(
        f"{_EACH_SCHEDULE}(s, (!has(s.minReplicas) || (s.minReplicas >= self.autoscaling.minReplicas && "
        "s.minReplicas <= self.autoscaling.maxReplicas)) && "
        "(!has(s.maxReplicas) || (s.maxReplicas >= self.autoscaling.minReplicas && "
        "s.maxReplicas <= self.autoscaling.maxReplicas)))",
        "bounds of each of autoscaling.schedules must lie between autoscaling.minReplicas and autoscaling.maxReplicas",
        "autoscaling.schedules",
    ),
    Rule(
        f"!has(self.budget.maxGPUs) || {_EACH_SCHEDULE}"
        "(s, !has(s.minReplicas) || s.minReplicas * self.resources.gpu.count <= self.budget.maxGPUs)",
        "minReplicas of each of autoscaling.schedules must fit into budget.maxGPUs",
        "autoscaling.schedules",
    ),
    Rule(
        "!has(self.engine.maxBatchedTokens) || self.engine.maxBatchedTokens >= self.engine.maxNumSeqs",
        "engine.maxBatchedTokens must be at least engine.maxNumSeqs",
        "engine.maxBatchedTokens",
    ),
    Rule(
        "self.engine.minPriority <= self.engine.maxPriority",
        "engine.minPriority must be at most engine.maxPriority",
        "engine.minPriority",
    ),
    Rule(
        "self.engine.scheduling.reservedSlots < self.engine.maxNumSeqs",
        "engine.scheduling.reservedSlots must be below engine.maxNumSeqs",
        "engine.scheduling.reservedSlots",
    ),
    Rule(
        "!self.engine.scheduling.pauseLowerClasses || (has(self.engine.order) && self.engine.order == 'priority')",
        "engine.scheduling.pauseLowerClasses must be false unless engine.order is priority",
        "engine.scheduling.pauseLowerClasses",
    ),
    Rule(
        "!self.engine.scheduling.pauseLowerClasses || !self.engine.scheduling.prefillFirst",
        "engine.scheduling.pauseLowerClasses and engine.scheduling.prefillFirst must not both be true",
        "engine.scheduling.pauseLowerClasses",
    ),
    Rule(
        "has(self.engine.scheduling.draftModel) == (self.engine.scheduling.speculative == 'draft')",
        "engine.scheduling.draftModel must be set if engine.scheduling.speculative is draft, and unset if not",
        "engine.scheduling.draftModel",
    ),
    Rule(
        "self.resources.gpu.count == 0 || self.engine.scheduling.speculative != 'draft'",
        "engine.scheduling.speculative must not be draft on GPUs",
        "engine.scheduling.speculative",
    ),
    Rule(
        "self.resources.gpu.count == 0 || self.engine.quantization != 'int8'",
        "engine.quantization must be auto or none on GPUs",
        "engine.quantization",
    ),
    Rule(
        "self.resources.gpu.count > 0 || self.engine.kvCacheDtype != 'fp8'",
        "engine.kvCacheDtype must be auto or int8 without GPUs",
        "engine.kvCacheDtype",
    ),
    Rule(
        "self.resources.gpu.count == 0 || !has(self.engine.blockSize) || self.engine.blockSize in [16, 32, 64] || "
        "self.engine.runtime.type != 'Paternoster'",
        "engine.blockSize must be 16, 32 or 64 on GPUs",
        "engine.blockSize",
    ),
    Rule(
        "!has(self.concurrency.max) || self.concurrency.max <= self.engine.maxNumSeqs",
        "concurrency.max must be at most engine.maxNumSeqs, the capacity",
        "concurrency.max",
    ),
    Rule(
        "self.concurrency.min <= (has(self.concurrency.max) ? self.concurrency.max : self.engine.maxNumSeqs)",
        "concurrency.min must be at most concurrency.max, or engine.maxNumSeqs where that is unset",
        "concurrency.min",
    ),
    Rule(
        "!has(self.concurrency.initial) || (self.concurrency.initial >= self.concurrency.min && "
        "self.concurrency.initial <= (has(self.concurrency.max) ? self.concurrency.max : self.engine.maxNumSeqs))",
        "concurrency.initial must lie between concurrency.min and concurrency.max (engine.maxNumSeqs where unset)",
        "concurrency.initial",
    ),
    Rule(
        "!has(self.concurrency.tokenBudget) || !has(self.concurrency.tokenBudget.min) || "
        "!has(self.engine.maxBatchedTokens) || self.concurrency.tokenBudget.min <= self.engine.maxBatchedTokens",
        "concurrency.tokenBudget.min must be at most engine.maxBatchedTokens, the capacity",
        "concurrency.tokenBudget.min",
    ),
    Rule(
        "!has(self.concurrency.tokenBudget) || !has(self.concurrency.tokenBudget.min) || "
        "self.concurrency.tokenBudget.min >= self.concurrency.min",
        "concurrency.tokenBudget.min must be at least concurrency.min, so that whoever runs can advance",
        "concurrency.tokenBudget.min",
    ),
    Rule(
        "!has(self.rollout.maxSurge) || self.rollout.maxSurge != 0 || "
        "!has(self.rollout.maxUnavailable) || self.rollout.maxUnavailable != 0",
        "rollout.maxSurge and rollout.maxUnavailable must not both be 0",
        "rollout.maxSurge",
    ),
    Rule(
        "!has(self.budget.maxGPUs) || (has(self.autoscaling) ? self.autoscaling.minReplicas : "
        "(has(self.replicas) ? self.replicas : 1)) * self.resources.gpu.count <= self.budget.maxGPUs",
        "budget.maxGPUs must allow the GPUs of the fewest replicas asked for",
        "budget.maxGPUs",
    ),
    Rule(
        "!has(self.resources.gpu.claimTemplateName) || self.resources.gpu.count >= 1",
        "resources.gpu.count must say how many GPUs resources.gpu.claimTemplateName brings",
        "resources.gpu.count",
    ),
    Rule(
        "!has(self.cost) || self.resources.gpu.count >= 1",
        "cost.gpuHour prices GPUs: resources.gpu.count must be at least 1",
        "resources.gpu.count",
    ),
    Rule(
        "!has(self.adapters) || self.adapters.all(a, self.adapters.exists_one(b, b.name == a.name))",
        "each of adapters must have a name of its own",
        "adapters",
    ),
    Rule(
        f"{_NO_ADAPTERS} || !self.adapters.exists(a, (has(self.model.servedName) && a.name == self.model.servedName) "
        "|| (has(self.model.aliases) && self.model.aliases.exists(n, n == a.name)))",
        "none of adapters must have the name of the model: model.servedName or one of model.aliases",
        "adapters",
    ),
    Rule(
        f"{_NO_ADAPTERS} || self.engine.runtime.type == 'Paternoster'",
        "adapters must be unset with another engine.runtime.type than Paternoster: the operator loads them by the "
        "admin API of our own engine alone",
        "adapters",
    ),
    Rule(
        f"{_NO_ADAPTERS} || has(self.engine.memory.maxAdapterMemory) || self.engine.runtime.type != 'Paternoster'",
        "engine.memory.maxAdapterMemory must bound the memory of adapters",
        "engine.memory.maxAdapterMemory",
    ),
    Rule(
        f"{_NO_ADAPTERS} || (has(self.security.apiKeys) && size(self.security.apiKeys) > 0) "
        "|| !self.adapters.exists(a, has(a.keys))",
        "keys of each of adapters must be unset without security.apiKeys, whose tenants they name",
        "adapters",
    ),
    *POD_TEMPLATE_RULES,
    *RUNTIME_RULES,
    *TARGET_RULES,
)
"""Rules on ``spec``."""

OBJECT_RULES: tuple[Rule, ...] = (
    Rule(
        f"self.metadata.name.matches('{NAME_PATTERN}')",
        "metadata.name must begin with a letter and have no capitals, as the name of its Service must (RFC 1035); dots "
        "become dashes there",
        "metadata.name",
    ),
    Rule(
        "!has(self.spec.adapters) || has(self.spec.model.servedName) || "
        "!self.spec.adapters.exists(a, a.name == self.metadata.name)",
        "none of spec.adapters must have the name of the LLMDeployment, which is the model's without model.servedName",
        "spec.adapters",
    ),
    Rule("size(self.metadata.name) <= 50", "metadata.name must be at most 50 characters", "metadata.name"),
)
"""Rules on the object itself."""
