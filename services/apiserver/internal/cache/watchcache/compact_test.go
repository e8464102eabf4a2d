package watchcache_test

import (
	"maps"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/storage"
)

// TestEntryReturnsAttributesOfResource checks that an entry returns the attributes that the
// resource computed, independent of the key.
func TestEntryReturnsAttributesOfResource(t *testing.T) {
	long := strings.Repeat("long", 20_000)
	some := map[string]string{"a": "1", "b": "", "c": "3"}
	for _, c := range []struct {
		what, key, namespace, name string
		labels, fields             map[string]string
	}{
		{"ordinary", "/registry/pods/ns/name", "ns", "name", some, some},
		{"without a namespace", "/registry/pods/name", "", "name", some, nil},
		{"without labels", "/registry/pods/ns/name", "ns", "name", nil, some},
		{"without anything", "/registry/pods/ns/name", "ns", "name", nil, nil},
		{"of another name", "/registry/pods/ns/name", "ns", "other", some, some},
		{"of another name, without fields", "/registry/pods/ns/name", "ns", "other", some, nil},
		{"of another namespace", "/registry/pods/ns/name", "other", "name", nil, some},
		{"of a namespace that the key ends with otherwise", "/registry/pods/a.ns/name", "ns", "name", some, some},
		{"of a namespace without its slash", "/registry/pods/nsname", "ns", "name", some, some},
		{"of a name that is more than the key", "/registry/pods/a", "", "/x/registry/pods/a", some, some},
		{"without a name", "/registry/pods/ns/name", "", "", some, some},
		{"of a namespace alone", "/registry/pods/ns/", "ns", "", some, some},
		{"of a long name", "/registry/pods/ns/" + long, "ns", long, some, some},
		{"of a long namespace", "/registry/pods/" + long + "/name", long, "name", some, some},
		{"with long values", "/registry/pods/ns/name", "ns", "name", map[string]string{"a": long, "b": "2"},
			map[string]string{"c": "3", "d": long}},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := newRig(t, newMemStore(), func(cfg *watchcache.Config) {
				cfg.Resources[0].Attributes = func(string, []byte) (watchcache.Attributes, error) {
					return watchcache.Attributes{
						Namespace: c.namespace,
						Name:      c.name,
						Labels:    watchcache.SetOf(c.labels),
						Fields:    watchcache.SetOf(c.fields),
					}, nil
				}
			})
			e := r.pods.Entry(storage.KeyValue{Key: c.key, Value: []byte("{}"), ModRevision: 7, CreateRevision: 5})
			if e.Key() != c.key || e.Namespace() != c.namespace || e.Name() != c.name {
				t.Errorf("got key %.50q, namespace %.50q, name %.50q", e.Key(), e.Namespace(), e.Name())
			}
			if got := maps.Collect(e.Labels().All()); !maps.Equal(got, c.labels) {
				t.Errorf("got labels %.200v, want %.200v", got, c.labels)
			}
			if got := maps.Collect(e.Fields().All()); !maps.Equal(got, c.fields) {
				t.Errorf("got fields %.200v, want %.200v", got, c.fields)
			}
		})
	}
}
