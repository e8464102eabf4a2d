package flowcontrol

import (
	"math"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Names of what is always there.
const (
	Exempt   = flowcontrolv1.PriorityLevelConfigurationNameExempt
	CatchAll = flowcontrolv1.PriorityLevelConfigurationNameCatchAll
)

// defaultShares of a level that does not say how many it has.
const defaultShares = 30

// Config is what flow schemas and priority levels say. It does not change.
type Config struct {
	index index
	*plans
	exempt, last *rules // last is for what no schema matches
}

// find the schema of a request.
func (c *Config) find(u *request.User, op *requestinfo.Info) *rules {
	if r := c.index.find(u, op, c.of); r != nil {
		return r
	}
	return c.last
}

// binding is the name of a schema and that of the level it leads to.
type binding struct{ level, schema string }

// bindings returns the bindings of all schemas.
func (c *Config) bindings() map[binding]bool {
	out := map[binding]bool{}
	for _, r := range []*rules{c.exempt, c.last} {
		out[binding{r.level, r.name}] = true
	}
	c.index.tree.Scan(func(a about) bool {
		out[binding{a.level, a.rules.name}] = true
		return true
	})
	return out
}

// plans of the priority levels by name. They are the same ones as long as no level
// changes.
type plans struct{ of map[string]*plan }

// plan is what a priority level says.
type plan struct {
	name, uid string
	kind      kind
	shares    int
	lendable  float64  // the part of its seats that others may use
	borrowing *float64 // how much it may use of others', as a part of its own; nil: all
	queues    int
	hand      int
	length    int // of a queue
}

// kind is what a level does with requests that it has no seats for.
type kind int

const (
	exempt kind = iota // it has seats for all
	rejects
	queues
)

// Compile makes the configuration of objects. The mandatory ones are there even
// when they are missing, and say what they have to. Schemas whose level is not
// there match nothing. Objects are not kept.
func Compile(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) *Config {
	c := NewCompiler()
	for _, l := range levels {
		c.PutLevel(l)
	}
	for _, s := range schemas {
		c.PutSchema(s)
	}
	return c.Config()
}

func planOf(l *flowcontrolv1.PriorityLevelConfiguration) *plan {
	p := &plan{name: l.Name, uid: string(l.UID)}
	if l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		if e := l.Spec.Exempt; e != nil {
			p.shares, p.lendable = int(deref(e.NominalConcurrencyShares, 0)), percent(e.LendablePercent)
		}
		return p
	}
	p.kind, p.shares = rejects, defaultShares
	e := l.Spec.Limited
	if e == nil {
		return p
	}
	p.shares, p.lendable = int(deref(e.NominalConcurrencyShares, defaultShares)), percent(e.LendablePercent)
	if b := e.BorrowingLimitPercent; b != nil {
		part := percent(b)
		p.borrowing = &part
	}
	if q := e.LimitResponse.Queuing; q != nil && e.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue {
		p.kind, p.queues, p.hand, p.length = queues, max(int(q.Queues), 1), int(q.HandSize), max(int(q.QueueLengthLimit), 1)
		p.hand = min(max(p.hand, 1), p.queues)
	}
	return p
}

func deref(v *int32, none int32) int32 {
	if v == nil {
		return none
	}
	return *v
}

func percent(v *int32) float64 { return float64(deref(v, 0)) / 100 }

// limits of a level in seats.
type limits struct{ nominal, lower, upper int }

// divide gives each level its limits, when the server has so many seats.
func divide(plans map[string]*plan, seats int) map[string]limits {
	sum := 0
	for _, p := range plans {
		sum += p.shares
	}
	out := make(map[string]limits, len(plans))
	for name, p := range plans {
		var n limits
		if sum > 0 {
			n.nominal = int(math.Ceil(float64(seats) * float64(p.shares) / float64(sum)))
		}
		n.lower = n.nominal - int(math.Round(float64(n.nominal)*p.lendable))
		n.upper = n.nominal + seats
		if p.borrowing != nil {
			n.upper = n.nominal + int(math.Round(float64(n.nominal)**p.borrowing))
		}
		out[name] = n
	}
	return out
}

func mandatoryLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	none, few := int32(0), int32(5)
	return []*flowcontrolv1.PriorityLevelConfiguration{
		{ObjectMeta: metav1.ObjectMeta{Name: Exempt}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &none, LendablePercent: &none},
		}},
		{ObjectMeta: metav1.ObjectMeta{Name: CatchAll}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &few, LendablePercent: &none,
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		}},
	}
}

func mandatorySchemas() []*flowcontrolv1.FlowSchema {
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	everything := func(subjects ...flowcontrolv1.Subject) []flowcontrolv1.PolicyRulesWithSubjects {
		all := []string{"*"}
		return []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects:         subjects,
			ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
		}}
	}
	schema := func(name string, precedence int32, distinguisher *flowcontrolv1.FlowDistinguisherMethod, r []flowcontrolv1.PolicyRulesWithSubjects) *flowcontrolv1.FlowSchema {
		return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name}, MatchingPrecedence: precedence,
			DistinguisherMethod: distinguisher, Rules: r,
		}}
	}
	return []*flowcontrolv1.FlowSchema{
		schema(Exempt, 1, nil, everything(group(api.GroupMasters))),
		schema(CatchAll, 10000, &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			everything(group(api.GroupAuthenticated), group(api.GroupUnauthenticated))),
	}
}
