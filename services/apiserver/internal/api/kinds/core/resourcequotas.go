package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// resourceQuotas declares the namespaced kind ResourceQuota.
func resourceQuotas() *registry.Kind {
	return declare.Kind[corev1.ResourceQuota, corev1.ResourceQuotaList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "resourcequotas", Kind: "ResourceQuota",
			ShortNames: []string{"quota"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(r *corev1.ResourceQuota) (*corev1.ResourceQuotaSpec, *corev1.ResourceQuotaStatus) {
			return &r.Spec, &r.Status
		}),
		Default:        declare.Adapt(defaultQuota),
		DefaultedRules: transcode.Rules(), // none: the transcoder never writes quantities that are not rounded
		Create: registry.Create{
			Validate: declare.AdaptValidation(validateQuota),
			Warnings: declare.AdaptResult(quotaWarnings),
		},
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, q, old *corev1.ResourceQuota) {
				validateQuota(fld, q)
				validateQuotaChanges(fld, q, old)
			}),
			// As in Kubernetes, updates have no warnings.
			Warnings: declare.AdaptUpdateResult(func(_, _ *corev1.ResourceQuota) []string { return nil }),
		},
		Delete: registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("Request", "Request represents a minimum amount of cpu/memory that a container may consume.",
				func(q *corev1.ResourceQuota) string { return quotaText(q, false) }),
			columns.Text(
				"Limit",
				"Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
				func(q *corev1.ResourceQuota) string { return quotaText(q, true) },
			),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{declare.ValidatedStatus("ResourceQuota", validateQuotaStatus)},
	})
}

func defaultQuota(q *corev1.ResourceQuota) {
	poddefaults.Round(q.Spec.Hard)
	poddefaults.Round(q.Status.Hard)
	poddefaults.Round(q.Status.Used)
}

// quotaText returns the used and hard amounts of a quota's resources. With limitsOnly, it returns
// those of limits, otherwise those of all other resources.
func quotaText(quota *corev1.ResourceQuota, limitsOnly bool) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		if strings.HasPrefix(string(name), "limits.") != limitsOnly {
			continue
		}
		used, hard := quota.Status.Used[name], quota.Status.Hard[name]
		texts = append(texts, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(texts, ", ")
}

// quotaWarnings returns warnings for requests above their limits.
func quotaWarnings(quota *corev1.ResourceQuota) []string {
	var warnings []string
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage,
	} {
		requestName, limitName := "requests."+name, "limits."+name
		request, ok := quota.Spec.Hard[requestName]
		if !ok && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			requestName = name
			request, ok = quota.Spec.Hard[name]
		}
		limit, limited := quota.Spec.Hard[limitName]
		if ok && limited && request.Cmp(limit) > 0 {
			warnings = append(warnings, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)",
				requestName, request.String(), limitName, limit.String()))
		}
	}
	return warnings
}
