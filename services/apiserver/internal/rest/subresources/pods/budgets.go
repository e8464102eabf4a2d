package pods

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

// budgetResource is the resource of disruption budgets.
var budgetResource = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")

// budgetPaths are the fields that budgetOf and evictBudgeted read.
var budgetPaths = []string{
	"metadata.name", "spec.selector", "spec.unhealthyPodEvictionPolicy", "status.currentHealthy",
	"status.desiredHealthy",
}

// budgetOf returns the budget that selects a pod, with the fields of budgetPaths only, or nil. It
// estimates the cost of the request first, because it reads all budgets of the namespace.
func budgetOf(ctx context.Context, kind *apiset.Resource, pod *corev1.Pod) (found *policyv1.PodDisruptionBudget, err error) {
	decodeFields, err := kind.Coder.FieldsDecoder(budgetPaths...)
	if err != nil {
		return nil, err
	}
	snapshot := kind.Store.Snapshot()
	prefix := kind.Prefix + pod.Namespace + "/"
	size := 0
	snapshot.Ascend(prefix, "", func(e *objects.Entry) bool {
		size += e.Size()
		return true
	})
	if err := request.Estimate(ctx, size); err != nil {
		return nil, err
	}
	snapshot.Ascend(prefix, "", func(e *objects.Entry) bool {
		err = ctx.Err()
		if err != nil { // the request has ended
			return false
		}
		var budget *policyv1.PodDisruptionBudget
		budget, err = readBudget(decodeFields, e)
		if err != nil {
			return false
		}
		selector, invalid := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if invalid != nil || !selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
		if found != nil {
			err = status.Error(http.StatusInternalServerError, "",
				"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
				nil)
			return false
		}
		found = budget
		return true
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// readBudget decodes a stored budget. An undecodable one is an error, because it may select the
// pod.
func readBudget(decodeFields func(codec.Item) (registry.Object, error), entry *objects.Entry) (*policyv1.PodDisruptionBudget, error) {
	if err := entry.Corrupt(); err != nil {
		return nil, fmt.Errorf("read disruption budget %q: %w", entry.Name(), err)
	}
	loan := entry.Borrow()
	defer loan.Release()
	obj, err := decodeFields(codec.Item{Stored: loan.Value, Revision: entry.Revision})
	if err != nil {
		return nil, fmt.Errorf("read disruption budget %q: %w", entry.Name(), err)
	}
	budget, ok := obj.(*policyv1.PodDisruptionBudget)
	if !ok {
		return nil, fmt.Errorf("%T is not a PodDisruptionBudget", obj)
	}
	return budget, nil
}
