package flowcontrol

import (
	"cmp"
	"strings"
	"sync/atomic"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// rules are a flow schema, made to be asked often. They do not change.
type rules struct {
	name, uid, level string
	precedence       int32
	distinguish      flowcontrolv1.FlowDistinguisherMethodType // or ""
	all              []rule
	subjects         map[subject][]int32 // whom which of the rules are about, in order
	bound            atomic.Pointer[schema]
}

// subject is who a rule is about.
type subject struct {
	kind subjectKind
	name string
}

type subjectKind uint8

const (
	anyone    subjectKind = iota // without a name
	userNamed                    // a service account too
	groupNamed
	accountsOf // a namespace
)

// rule is what the requests of its subjects have to do.
type rule struct {
	resources []resourceRule
	paths     []pathRule
}

type resourceRule struct {
	verbs, groups, resources, namespaces names
	cluster                              bool
}

type pathRule struct{ verbs, paths names }

func rulesOf(s *flowcontrolv1.FlowSchema) *rules {
	r := &rules{
		name: s.Name, uid: string(s.UID), level: s.Spec.PriorityLevelConfiguration.Name, precedence: s.Spec.MatchingPrecedence,
		all: make([]rule, len(s.Spec.Rules)), subjects: map[subject][]int32{},
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		r.distinguish = m.Type
	}
	for i := range s.Spec.Rules {
		p, one := &s.Spec.Rules[i], &r.all[i]
		for j := range p.ResourceRules {
			q := &p.ResourceRules[j]
			one.resources = append(one.resources, resourceRule{namesOf(q.Verbs), namesOf(q.APIGroups), namesOf(q.Resources), namesOf(q.Namespaces), q.ClusterScope})
		}
		for j := range p.NonResourceRules {
			q := &p.NonResourceRules[j]
			one.paths = append(one.paths, pathRule{namesOf(q.Verbs), namesOf(q.NonResourceURLs)})
		}
		for j := range p.Subjects {
			r.add(&p.Subjects[j], int32(i))
		}
	}
	return r
}

// add notes that a rule is about a subject.
func (r *rules) add(s *flowcontrolv1.Subject, i int32) {
	var who subject
	switch {
	case s.User != nil && s.User.Name == flowcontrolv1.NameAll, s.Group != nil && s.Group.Name == flowcontrolv1.NameAll:
	case s.User != nil:
		who = subject{userNamed, s.User.Name}
	case s.Group != nil:
		who = subject{groupNamed, s.Group.Name}
	case s.ServiceAccount != nil && s.ServiceAccount.Name == flowcontrolv1.NameAll:
		who = subject{accountsOf, s.ServiceAccount.Namespace}
	case s.ServiceAccount != nil:
		who = subject{userNamed, satoken.Username(s.ServiceAccount.Namespace, s.ServiceAccount.Name)}
	default:
		return
	}
	if of := r.subjects[who]; len(of) == 0 || of[len(of)-1] != i {
		r.subjects[who] = append(of, i)
	}
}

// compare orders schemas as they are asked.
func (r *rules) compare(o *rules) int {
	return cmp.Or(cmp.Compare(r.precedence, o.precedence), cmp.Compare(r.name, o.name))
}

// does tells whether what is done is of one of some rules.
func (r *rules) does(some []int32, op *requestinfo.Info) bool {
	for _, i := range some {
		if r.all[i].does(op) {
			return true
		}
	}
	return false
}

func (r *rule) does(op *requestinfo.Info) bool {
	if op.IsResource {
		for i := range r.resources {
			if r.resources[i].does(op) {
				return true
			}
		}
		return false
	}
	for i := range r.paths {
		if p := &r.paths[i]; p.verbs.has(op.Verb) && p.paths.hasPath(op.Path) {
			return true
		}
	}
	return false
}

func (p *resourceRule) does(op *requestinfo.Info) bool {
	if op.Namespace == "" {
		if !p.cluster {
			return false
		}
	} else if !p.namespaces.has(op.Namespace) {
		return false
	}
	return p.verbs.has(op.Verb) && p.groups.has(op.Group) && p.resources.hasResource(op.Resource, op.Subresource)
}

// accountNamespace is that of a service account by the name of a user, which is not
// looked at further.
func accountNamespace(user string) (string, bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", false
	}
	namespace, _, ok := strings.Cut(rest, ":")
	return namespace, ok
}

const accountPrefix = "system:serviceaccount:"

// flow is what tells a request from others of its schema.
func (r *rules) flow(u *request.User, op *requestinfo.Info) string {
	switch r.distinguish {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return op.Namespace
	}
	return ""
}
