package resourcequota

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Manager is who API servers are in the field ownership of quotas.
const Manager = "kube-apiserver"

// countedBy tells when others than API servers wrote the status of a quota last,
// as far as its field ownership tells.
func countedBy(q *corev1.ResourceQuota) map[string]metav1.Time {
	times := map[string]metav1.Time{}
	for i := range q.ManagedFields {
		if f := &q.ManagedFields[i]; f.Subresource == "status" && f.Manager != Manager && f.Time != nil {
			times[f.Manager+"/"+string(f.Operation)] = *f.Time
		}
	}
	return times
}

// countedSince tells whether somebody may have counted since the charge: wrote the
// status at another time, or owns an amount that became this server's with the
// charge. Without field ownership nobody knows.
func (c *charge) countedSince(q *corev1.ResourceQuota) bool {
	if len(q.ManagedFields) == 0 || !maps.EqualFunc(countedBy(q), c.counted, func(a, b metav1.Time) bool { return a.Equal(&b) }) {
		return true
	}
	for i := range q.ManagedFields {
		f := &q.ManagedFields[i]
		if f.Subresource != "status" || f.Manager == Manager || f.FieldsV1 == nil {
			continue
		}
		var owned struct {
			Status struct {
				Used map[string]json.RawMessage `json:"f:used"`
			} `json:"f:status"`
		}
		if json.Unmarshal(f.FieldsV1.Raw, &owned) != nil {
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
