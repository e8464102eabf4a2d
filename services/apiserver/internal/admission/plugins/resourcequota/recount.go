package resourcequota

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FieldManager is the field manager under which API servers write the usage of quotas.
const FieldManager = "kube-apiserver"

// recountTimes returns when each field manager other than the API servers last wrote the status of
// a quota, according to the quota's managed fields. Keys are manager and operation.
func recountTimes(q *corev1.ResourceQuota) map[string]metav1.Time {
	times := map[string]metav1.Time{}
	for i := range q.ManagedFields {
		if f := &q.ManagedFields[i]; f.Subresource == "status" && f.Manager != FieldManager && f.Time != nil {
			times[f.Manager+"/"+string(f.Operation)] = *f.Time
		}
	}
	return times
}

// recountedSince reports whether another manager, such as the quota controller, may have recounted
// the objects since the charge. This is so if the manager wrote the status since, or owns a charged
// amount. If the quota has no managed fields, recountedSince returns true.
func (c *charge) recountedSince(quota *corev1.ResourceQuota) bool {
	if len(quota.ManagedFields) == 0 ||
		!maps.EqualFunc(recountTimes(quota), c.recountTimes, func(a, b metav1.Time) bool { return a.Equal(&b) }) {
		return true
	}
	for i := range quota.ManagedFields {
		managedFieldsEntry := &quota.ManagedFields[i]
		if managedFieldsEntry.Subresource != "status" || managedFieldsEntry.Manager == FieldManager || managedFieldsEntry.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Status struct {
				Used map[string]json.RawMessage `json:"f:used"`
			} `json:"f:status"`
		}
		if json.Unmarshal(managedFieldsEntry.FieldsV1.Raw, &owned) != nil {
			return true
		}
		for name := range c.amounts {
			if _, ok := owned.Status.Used["f:"+string(name)]; ok {
				return true
			}
		}
	}
	return false
}
