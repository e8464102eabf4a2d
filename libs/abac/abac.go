package abac

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
)

const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
	all        = "*"
	// maxLine and maxPolicies bound what is read.
	maxLine     = 1 << 20
	maxPolicies = 100_000
)

// Spec is what a policy says.
type Spec struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

type policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       Spec   `json:"spec"`
}

// Authorizer decides by a list of policies.
type Authorizer struct{ policies []Spec }

// Load reads a policy file. Errors name the line.
func Load(file string) (*Authorizer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("authorization policy file: %w", err)
	}
	defer f.Close()
	z, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("authorization policy file %s: %w", file, err)
	}
	return z, nil
}

// Parse reads policies.
func Parse(r io.Reader) (*Authorizer, error) {
	z := &Authorizer{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		s, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(z.policies) == maxPolicies {
			return nil, fmt.Errorf("line %d: more than %d policies", n, maxPolicies)
		}
		z.policies = append(z.policies, s)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	return z, nil
}

func parseLine(line []byte) (Spec, error) {
	var p policy
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Spec{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Spec{}, errors.New("more than one object")
	}
	if p.APIVersion != apiVersion || p.Kind != kind {
		return Spec{}, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", p.APIVersion, p.Kind, apiVersion, kind)
	}
	if p.Spec.User == all || p.Spec.Group == all {
		p.Spec.Group = api.GroupAuthenticated
		if p.Spec.User == all {
			p.Spec.User = ""
		}
	}
	return p.Spec, nil
}

// Authorize implements authorizer.Authorizer.
func (z *Authorizer) Authorize(_ context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range z.policies {
		if z.policies[i].allows(a) {
			return authorizer.Allow, "", nil
		}
	}
	return authorizer.NoOpinion, "No policy matched.", nil
}

func (s *Spec) allows(a *authorizer.Attributes) bool {
	if !s.concerns(a.User) || s.Readonly && a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" {
		return false
	}
	if a.Resource {
		return matches(s.Namespace, a.Namespace) && matches(s.Resource, a.ResourceName) && matches(s.APIGroup, a.Group)
	}
	prefix, open := strings.CutSuffix(s.NonResourcePath, all)
	return s.NonResourcePath != "" && (s.NonResourcePath == a.Path || open && strings.HasPrefix(a.Path, strings.TrimRight(prefix, all)))
}

func matches(pattern, value string) bool { return pattern == all || pattern == value }

// concerns tells whether a policy is for a user; one that names neither a user
// nor a group is for nobody.
func (s *Spec) concerns(u *authorizer.User) bool {
	if u == nil || s.User == "" && s.Group == "" {
		return false
	}
	return (s.User == "" || s.User == u.Name) && (s.Group == "" || u.InGroup(s.Group))
}

// RulesFor implements authorizer.RuleResolver.
func (z *Authorizer) RulesFor(_ context.Context, u *authorizer.User, namespace string) (authorizer.Rules, error) {
	var out authorizer.Rules
	for i := range z.policies {
		s := &z.policies[i]
		if !s.concerns(u) {
			continue
		}
		verbs := []string{all}
		if s.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if s.Resource != "" && matches(s.Namespace, namespace) {
			out.Resource = append(out.Resource, authorizationv1.ResourceRule{Verbs: verbs, APIGroups: []string{s.APIGroup}, Resources: []string{s.Resource}})
		}
		if s.NonResourcePath != "" {
			out.NonResource = append(out.NonResource, authorizationv1.NonResourceRule{Verbs: verbs, NonResourceURLs: []string{s.NonResourcePath}})
		}
	}
	return out, nil
}
