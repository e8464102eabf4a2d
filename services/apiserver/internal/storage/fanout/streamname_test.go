package fanout_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/storage/fanout"
)

// TestStreamNamesAreDistinctAndValid checks that names are distinct and valid in NATS subjects.
func TestStreamNamesAreDistinctAndValid(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, prefix := range []string{
		"/events/", "/leases/", "/services/specs/", "/" + strings.Repeat("x", 70) + "/",
		"/" + strings.Repeat("x", 70) + "y/",
	} {
		name := fanout.StreamName("id", prefix)
		if o := (fanout.Options{ClusterID: name}); o.Validate() != nil || seen[name] {
			t.Errorf("%s: got stream name %q (%v), want a valid one of its own", prefix, name, o.Validate())
		}
		seen[name] = true
	}
}
