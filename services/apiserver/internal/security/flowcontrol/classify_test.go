package flowcontrol_test

import (
	"context"
	"fmt"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/request"
)

// BenchmarkClassify measures the classification of a service account with the number of schemas of a
// new cluster. The last schema matches. The second row adds many schemas that match only other users.
func BenchmarkClassify(b *testing.B) {
	const (
		builtinSchemas = 11 // besides global-default
		rulesPerSchema = 300
		level          = "l"
	)
	for name, otherSchemas := range map[string]int{"0": 0, "500": 500} {
		b.Run(name, func(b *testing.B) {
			var schemas []*flowcontrolv1.FlowSchema
			for i := range builtinSchemas {
				schemas = append(schemas,
					newSchema(fmt.Sprint("builtin-", i), level, int32(100+i), newGroup(fmt.Sprint("g", i)), newGroup(fmt.Sprint("h", i))))
			}
			schemas = append(schemas, newSchema("global-default", level, 9900, newGroup("system:authenticated")))
			for i := range otherSchemas {
				s := newSchema(fmt.Sprint("other-", i), level, int32(50+i))
				rule := s.Spec.Rules[0]
				s.Spec.Rules = nil
				for j := range rulesPerSchema {
					rule.Subjects = []flowcontrolv1.Subject{newGroup(fmt.Sprint("other", j))}
					s.Spec.Rules = append(s.Spec.Rules, rule)
				}
				schemas = append(schemas, s)
			}
			fixture := newFixture(b, 600, newRejectingLevel(level, 100))
			setConfig(fixture, schemas, newRejectingLevel(level, 100))
			user := &request.User{
				Name:   "system:serviceaccount:a:b",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"},
			}
			b.ReportAllocs()
			for b.Loop() {
				req, _, err := fixture.Acquire(context.Background(), user, list, oneSeat)
				if err != nil {
					b.Fatal(err)
				}
				fixture.Release(req)
			}
		})
	}
}
