package flowcontrol_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
)

// BenchmarkClassify measures classification with the number of schemas of a new cluster, and with
// many additional schemas that match other users.
func BenchmarkClassify(b *testing.B) {
	for _, additional := range []int{0, 500} {
		b.Run(fmt.Sprint(additional), func(b *testing.B) {
			f := newFixture(b, 600, newLevel("l", 100, 0, 0, 0))
			var all []*flowcontrolv1.FlowSchema
			for i := range 11 {
				all = append(all,
					newSchema(fmt.Sprint("builtin-", i), "l", int32(100+i), newGroup(fmt.Sprint("g", i)), newGroup(fmt.Sprint("h", i))))
			}
			all = append(all, newSchema("global-default", "l", 9900, newGroup("system:authenticated")))
			for i := range additional {
				s := newSchema(fmt.Sprint("other-", i), "l", int32(50+i))
				rule := s.Spec.Rules[0]
				s.Spec.Rules = nil
				for j := range 300 {
					rule.Subjects = []flowcontrolv1.Subject{newGroup(fmt.Sprint("other", j))}
					s.Spec.Rules = append(s.Spec.Rules, rule)
				}
				all = append(all, s)
			}
			setConfig(f, all, newLevel("l", 100, 0, 0, 0))
			user := &request.User{
				Name:   "system:serviceaccount:a:b",
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"},
			}
			b.ReportAllocs()
			for b.Loop() {
				q, _, err := f.Acquire(context.Background(), user, list, oneSeat)
				if err != nil {
					b.Fatal(err)
				}
				f.Release(q)
			}
		})
	}
}

func setConfig(f *fixture, all []*flowcontrolv1.FlowSchema, levels ...*flowcontrolv1.PriorityLevelConfiguration) {
	f.SetConfig(flowcontrol.Compile(all, levels))
}

func newMetrics() *flowcontrol.Metrics {
	return flowcontrol.NewMetrics(prometheus.NewRegistry(), 1, 1, time.Now)
}
