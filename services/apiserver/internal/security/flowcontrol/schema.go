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

// compiledSchema is a flow schema in a form that is fast to match. It does not change.
type compiledSchema struct {
	name, uid, level string
	precedence       int32
	distinguisher    flowcontrolv1.FlowDistinguisherMethodType // or ""
	all              []rule
	subjects         map[subject][]int32 // indexes of the rules by subject, in order
	bound            atomic.Pointer[boundSchema]
}

// subject is a subject of a rule.
type subject struct {
	kind subjectKind
	name string
}

type subjectKind uint8

const (
	anySubject  subjectKind = iota // name is empty
	userSubject                    // also a single service account
	groupSubject
	namespaceSubject // all service accounts of a namespace
)

// rule describes the requests that a rule matches, apart from their subjects.
type rule struct {
	resources []resourceRule
	paths     []pathRule
}

type resourceRule struct {
	verbs, groups, resources, namespaces nameSet
	cluster                              bool
}

type pathRule struct{ verbs, paths nameSet }

func compileSchema(s *flowcontrolv1.FlowSchema) *compiledSchema {
	r := &compiledSchema{
		name: s.Name, uid: string(s.UID), level: s.Spec.PriorityLevelConfiguration.Name, precedence: s.Spec.MatchingPrecedence,
		all: make([]rule, len(s.Spec.Rules)), subjects: map[subject][]int32{},
	}
	if m := s.Spec.DistinguisherMethod; m != nil {
		r.distinguisher = m.Type
	}
	for i := range s.Spec.Rules {
		p, one := &s.Spec.Rules[i], &r.all[i]
		for j := range p.ResourceRules {
			q := &p.ResourceRules[j]
			one.resources = append(one.resources, resourceRule{newNameSet(q.Verbs), newNameSet(q.APIGroups), newNameSet(q.Resources), newNameSet(q.Namespaces), q.ClusterScope})
		}
		for j := range p.NonResourceRules {
			q := &p.NonResourceRules[j]
			one.paths = append(one.paths, pathRule{newNameSet(q.Verbs), newNameSet(q.NonResourceURLs)})
		}
		for j := range p.Subjects {
			r.addSubject(&p.Subjects[j], int32(i))
		}
	}
	return r
}

// addSubject records that rule i is about a subject.
func (r *compiledSchema) addSubject(s *flowcontrolv1.Subject, i int32) {
	var key subject
	switch {
	case s.User != nil && s.User.Name == flowcontrolv1.NameAll, s.Group != nil && s.Group.Name == flowcontrolv1.NameAll:
	case s.User != nil:
		key = subject{userSubject, s.User.Name}
	case s.Group != nil:
		key = subject{groupSubject, s.Group.Name}
	case s.ServiceAccount != nil && s.ServiceAccount.Name == flowcontrolv1.NameAll:
		key = subject{namespaceSubject, s.ServiceAccount.Namespace}
	case s.ServiceAccount != nil:
		key = subject{userSubject, satoken.Username(s.ServiceAccount.Namespace, s.ServiceAccount.Name)}
	default:
		return
	}
	if of := r.subjects[key]; len(of) == 0 || of[len(of)-1] != i {
		r.subjects[key] = append(of, i)
	}
}

// compare orders schemas by precedence and name.
func (r *compiledSchema) compare(o *compiledSchema) int {
	return cmp.Or(cmp.Compare(r.precedence, o.precedence), cmp.Compare(r.name, o.name))
}

// matchesAny reports whether any of the given rules matches a request.
func (r *compiledSchema) matchesAny(some []int32, op *requestinfo.Info) bool {
	for _, i := range some {
		if r.all[i].matches(op) {
			return true
		}
	}
	return false
}

func (r *rule) matches(op *requestinfo.Info) bool {
	if op.IsResource {
		for i := range r.resources {
			if r.resources[i].matches(op) {
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

func (p *resourceRule) matches(op *requestinfo.Info) bool {
	if op.Namespace == "" {
		if !p.cluster {
			return false
		}
	} else if !p.namespaces.has(op.Namespace) {
		return false
	}
	return p.verbs.has(op.Verb) && p.groups.has(op.Group) && p.resources.hasResource(op.Resource, op.Subresource)
}

// serviceAccountNamespace returns the namespace in the user name of a service account. It does not validate
// the name.
func serviceAccountNamespace(user string) (string, bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", false
	}
	namespace, _, ok := strings.Cut(rest, ":")
	return namespace, ok
}

const accountPrefix = "system:serviceaccount:"

// flowOf returns the value of the flow distinguisher of a request.
func (r *compiledSchema) flowOf(u *request.User, op *requestinfo.Info) string {
	switch r.distinguisher {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return op.Namespace
	}
	return ""
}
