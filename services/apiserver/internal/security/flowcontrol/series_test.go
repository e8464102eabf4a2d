package flowcontrol_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// TestSeriesOfDeletedSchemaAreRemoved checks that removing a schema removes its series. The series
// of its level and of other schemas remain.
func TestSeriesOfDeletedSchemaAreRemoved(t *testing.T) {
	level := newRejectingLevel("l", 5)
	fixture := newFixture(t, 10, level)
	request, err := fixture.acquire("a", "l")
	if err != nil {
		t.Fatal(err)
	}
	fixture.Release(request)
	if n := fixture.schemaSeries(t, "s-l"); n == 0 {
		t.Fatal("schema in use: got no series, want some")
	}
	fixture.SetConfig(flowcontrol.Compile(nil, []*flowcontrolv1.PriorityLevelConfiguration{level}))
	if n := fixture.schemaSeries(t, "s-l"); n != 0 {
		t.Errorf("%d series name a deleted schema, want 0", n)
	}
	if _, err := fixture.acquire("a", "other"); err != nil {
		t.Fatal(err)
	}
	if n := fixture.schemaSeries(t, "catch-all"); n == 0 {
		t.Error("mandatory schema: got no series, want some")
	}
}

// schemaSeries counts the series that name a schema.
func (r *fixture) schemaSeries(t *testing.T, schema string) (series int) {
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "flow_schema" && l.GetValue() == schema {
					series++
				}
			}
		}
	}
	return series
}
