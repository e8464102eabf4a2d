package flowcontrol

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/request"
)

// rules are a flow schema, made to be asked often.
type rules struct {
	name, uid, level string
	distinguish      flowcontrolv1.FlowDistinguisherMethodType // or ""
	all              []rule
}

type rule struct {
	users, groups []string
	namespaces    []string // of service accounts, all of which are meant
	anyone        bool
	resources     []flowcontrolv1.ResourcePolicyRule
	paths         []flowcontrolv1.NonResourcePolicyRule
}

func rulesOf(s *flowcontrolv1.FlowSchema) *rules {
	r := &rules{name: s.Name, uid: string(s.UID), level: s.Spec.PriorityLevelConfiguration.Name}
	if m := s.Spec.DistinguisherMethod; m != nil {
		r.distinguish = m.Type
	}
	for i := range s.Spec.Rules {
		p := s.Spec.Rules[i].DeepCopy()
		one := rule{resources: p.ResourceRules, paths: p.NonResourceRules}
		for _, subject := range p.Subjects {
			one.add(subject)
		}
		r.all = append(r.all, one)
	}
	return r
}

func (r *rule) add(s flowcontrolv1.Subject) {
	switch {
	case s.User != nil:
		r.anyone = r.anyone || s.User.Name == flowcontrolv1.NameAll
		r.users = append(r.users, s.User.Name)
	case s.Group != nil:
		r.anyone = r.anyone || s.Group.Name == flowcontrolv1.NameAll
		r.groups = append(r.groups, s.Group.Name)
	case s.ServiceAccount != nil && s.ServiceAccount.Name == flowcontrolv1.NameAll:
		r.namespaces = append(r.namespaces, s.ServiceAccount.Namespace)
	case s.ServiceAccount != nil:
		r.users = append(r.users, satoken.Username(s.ServiceAccount.Namespace, s.ServiceAccount.Name))
	}
}

// match tells whether a request is of this schema.
func (r *rules) match(u *request.User, op *request.Operation) bool {
	for i := range r.all {
		if one := &r.all[i]; one.asks(u) && one.does(op) {
			return true
		}
	}
	return false
}

func (r *rule) asks(u *request.User) bool {
	if r.anyone || slices.Contains(r.users, u.Name) {
		return true
	}
	for _, g := range r.groups {
		if u.InGroup(g) {
			return true
		}
	}
	if len(r.namespaces) == 0 {
		return false
	}
	namespace, _, ok := satoken.SplitUsername(u.Name)
	return ok && slices.Contains(r.namespaces, namespace)
}

func (r *rule) does(op *request.Operation) bool {
	if op.IsResource {
		return slices.ContainsFunc(r.resources, func(p flowcontrolv1.ResourcePolicyRule) bool { return onResource(&p, op) })
	}
	return slices.ContainsFunc(r.paths, func(p flowcontrolv1.NonResourcePolicyRule) bool {
		return has(p.Verbs, op.Verb) && slices.ContainsFunc(p.NonResourceURLs, func(pattern string) bool { return onPath(pattern, op.Path) })
	})
}

func onResource(p *flowcontrolv1.ResourcePolicyRule, op *request.Operation) bool {
	if op.Namespace == "" {
		if !p.ClusterScope {
			return false
		}
	} else if !has(p.Namespaces, op.Namespace) {
		return false
	}
	return has(p.Verbs, op.Verb) && has(p.APIGroups, op.Group) &&
		slices.ContainsFunc(p.Resources, func(s string) bool { return s == flowcontrolv1.ResourceAll || isResource(s, op) })
}

// isResource compares without making a string of the operation's.
func isResource(s string, op *request.Operation) bool {
	if op.Subresource == "" {
		return s == op.Resource
	}
	rest, ok := strings.CutPrefix(s, op.Resource)
	return ok && strings.HasPrefix(rest, "/") && rest[1:] == op.Subresource
}

func onPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// has tells whether a list of names has one, or stands for all.
func has(list []string, s string) bool { return slices.Contains(list, s) || slices.Contains(list, "*") }

// flow is what tells a request from others of its schema.
func (r *rules) flow(u *request.User, op *request.Operation) string {
	switch r.distinguish {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return u.Name
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return op.Namespace
	}
	return ""
}
