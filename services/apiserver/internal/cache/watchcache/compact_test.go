package watchcache_test

import (
	"maps"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// TestEntryReturnsAttributesOfResource checks that an entry returns the attributes that the
// resource computed, independent of the key.
func TestEntryReturnsAttributesOfResource(t *testing.T) {
	long := strings.Repeat("long", 20_000)
	some := map[string]string{"a": "1", "b": "", "c": "3"}
	for _, test := range []struct {
		subject, key, namespace, name string
		labels, fields                map[string]string
	}{
		{subject: "ordinary", key: "/registry/pods/ns/name", namespace: "ns", name: "name", labels: some, fields: some},
		{subject: "no namespace", key: "/registry/pods/name", name: "name", labels: some},
		{subject: "no labels", key: "/registry/pods/ns/name", namespace: "ns", name: "name", fields: some},
		{subject: "no labels and no fields", key: "/registry/pods/ns/name", namespace: "ns", name: "name"},
		{subject: "name differs from the key", key: "/registry/pods/ns/name", namespace: "ns", name: "other", labels: some, fields: some},
		{
			subject:   "name differs from the key, no fields",
			key:       "/registry/pods/ns/name",
			namespace: "ns",
			name:      "other",
			labels:    some,
		},
		{subject: "namespace differs from the key", key: "/registry/pods/ns/name", namespace: "other", name: "name", fields: some},
		{
			subject:   "namespace is a suffix of a part of the key",
			key:       "/registry/pods/a.ns/name",
			namespace: "ns",
			name:      "name",
			labels:    some,
			fields:    some,
		},
		{
			subject:   "no slash between namespace and name in the key",
			key:       "/registry/pods/nsname",
			namespace: "ns",
			name:      "name",
			labels:    some,
			fields:    some,
		},
		{
			subject: "name is longer than the key",
			key:     "/registry/pods/a",
			name:    "/x/registry/pods/a",
			labels:  some,
			fields:  some,
		},
		{subject: "no name", key: "/registry/pods/ns/name", labels: some, fields: some},
		{subject: "empty name", key: "/registry/pods/ns/", namespace: "ns", labels: some, fields: some},
		{subject: "long name", key: "/registry/pods/ns/" + long, namespace: "ns", name: long, labels: some, fields: some},
		{
			subject:   "long namespace",
			key:       "/registry/pods/" + long + "/name",
			namespace: long,
			name:      "name",
			labels:    some,
			fields:    some,
		},
		{
			subject:   "long labels and fields",
			key:       "/registry/pods/ns/name",
			namespace: "ns",
			name:      "name",
			labels:    map[string]string{"a": long, "b": "2"},
			fields:    map[string]string{"c": "3", "d": long},
		},
	} {
		t.Run(test.subject, func(t *testing.T) {
			rig := newRig(t, newMemStore(), func(cfg *watchcache.Config) {
				cfg.Resources[0].Attributes = func(string, []byte) (attributes.Attributes, error) {
					return attributes.Attributes{
						Namespace: test.namespace,
						Name:      test.name,
						Labels:    attributes.SetFromMap(test.labels),
						Fields:    attributes.SetFromMap(test.fields),
					}, nil
				}
			})
			e := rig.pods.Entry(storage.KeyValue{Key: test.key, Value: []byte("{}"), ModRevision: 7, CreateRevision: 5})
			if e.Key() != test.key || e.Namespace() != test.namespace || e.Name() != test.name {
				t.Errorf("got key %.50q, namespace %.50q, name %.50q, want %.50q, %.50q, %.50q",
					e.Key(), e.Namespace(), e.Name(), test.key, test.namespace, test.name)
			}
			if got := maps.Collect(e.Labels().All()); !maps.Equal(got, test.labels) {
				t.Errorf("got labels %.200v, want %.200v", got, test.labels)
			}
			if got := maps.Collect(e.Fields().All()); !maps.Equal(got, test.fields) {
				t.Errorf("got fields %.200v, want %.200v", got, test.fields)
			}
		})
	}
}
