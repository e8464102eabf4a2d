package abac

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
)

const (
	apiVersion = "abac.authorization.kubernetes.io/v1beta1"
	kind       = "Policy"
	wildcard   = "*"
	// maxLine and maxPolicies bound the input.
	maxLine     = 1 << 20
	maxPolicies = 100_000
)

// Spec is the content of a policy.
type Spec struct {
	User            string `json:"user,omitempty"`
	Group           string `json:"group,omitempty"`
	Readonly        bool   `json:"readonly,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// policy is a line of a policy file.
type policy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       Spec   `json:"spec"`
}

// Authorizer decides by a list of policies.
type Authorizer struct {
	policies []Spec
	// unversionedCount counts the policies in the unversioned form.
	unversionedCount int
}

// Load reads a policy file, and logs a warning if lines of it are in the unversioned
// form. Errors name the line.
func Load(file string, log *slog.Logger) (*Authorizer, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--authorization-policy-file: %w", err)
	}
	defer opened.Close()
	a, err := Parse(opened)
	if err != nil {
		return nil, fmt.Errorf("--authorization-policy-file: %s: %w", file, err)
	}
	if a.unversionedCount > 0 {
		log.Warn("authorization policy file has lines in the deprecated unversioned form; add apiVersion, kind and spec", "file", file, "lines", a.unversionedCount)
	}
	return a, nil
}

// Parse reads policies, one per line. Errors name the line.
func Parse(r io.Reader) (*Authorizer, error) {
	parsed := &Authorizer{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	lineNumber := 0
	for lines.Scan() {
		lineNumber++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		spec, versioned, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", lineNumber, err)
		}
		if !versioned {
			parsed.unversionedCount++
		}
		if len(parsed.policies) == maxPolicies {
			return nil, fmt.Errorf("line %d: more than %d policies", lineNumber, maxPolicies)
		}
		parsed.policies = append(parsed.policies, spec)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", lineNumber+1, err)
	}
	return parsed, nil
}

// parseLine parses one policy and reports whether the line contains its version.
func parseLine(line []byte) (spec Spec, versioned bool, err error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(line, &head); err == nil && (head.APIVersion == "" || head.APIVersion == apiVersionV0) {
		spec, err := parseV0(line)
		return spec, head.APIVersion != "", err
	}
	var parsed policy
	if err := decodeStrictly(line, &parsed); err != nil {
		return Spec{}, true, err
	}
	if parsed.APIVersion != apiVersion || parsed.Kind != kind {
		return Spec{}, true, fmt.Errorf("apiVersion %q, kind %q: want %s, %s", parsed.APIVersion, parsed.Kind, apiVersion, kind)
	}
	if parsed.Spec.User == wildcard || parsed.Spec.Group == wildcard {
		parsed.Spec.Group = api.GroupAuthenticated
		if parsed.Spec.User == wildcard {
			parsed.Spec.User = ""
		}
	}
	return parsed.Spec, true, nil
}

// decodeStrictly decodes a line that is one JSON object with known fields only.
func decodeStrictly(line []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one object")
	}
	return nil
}

// Authorize implements authorizer.Authorizer.
func (a *Authorizer) Authorize(_ context.Context, attributes *authorizer.Attributes) (authorizer.Decision, string, error) {
	for i := range a.policies {
		if a.policies[i].allows(attributes) {
			return authorizer.Allow, "", nil
		}
	}
	return authorizer.NoOpinion, "No policy matched.", nil
}

// allows reports whether a policy allows a request.
func (s *Spec) allows(attributes *authorizer.Attributes) bool {
	if !s.appliesTo(attributes.User) ||
		s.Readonly && attributes.Verb != "get" && attributes.Verb != "list" && attributes.Verb != "watch" {
		return false
	}
	if attributes.Resource {
		return matchesPattern(s.Namespace, attributes.Namespace) && matchesPattern(s.Resource,
			attributes.ResourceName) && matchesPattern(s.APIGroup, attributes.Group)
	}
	prefix, isPrefix := strings.CutSuffix(s.NonResourcePath, wildcard)
	return s.NonResourcePath != "" && (s.NonResourcePath == attributes.Path ||
		isPrefix && strings.HasPrefix(attributes.Path, strings.TrimRight(prefix, wildcard)))
}

func matchesPattern(pattern, value string) bool { return pattern == wildcard || pattern == value }

// appliesTo reports whether a policy applies to a user. A policy without a user and a group applies
// to none.
func (s *Spec) appliesTo(u *authorizer.User) bool {
	if u == nil || s.User == "" && s.Group == "" {
		return false
	}
	return (s.User == "" || s.User == u.Name) && (s.Group == "" || u.InGroup(s.Group))
}

// RulesFor implements authorizer.RuleResolver.
func (a *Authorizer) RulesFor(_ context.Context, u *authorizer.User, namespace string) (authorizer.Rules, error) {
	var out authorizer.Rules
	for i := range a.policies {
		spec := &a.policies[i]
		if !spec.appliesTo(u) {
			continue
		}
		verbs := []string{wildcard}
		if spec.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if spec.Resource != "" && matchesPattern(spec.Namespace, namespace) {
			out.Resource = append(out.Resource, authorizationv1.ResourceRule{
				Verbs:     verbs,
				APIGroups: []string{spec.APIGroup},
				Resources: []string{spec.Resource},
			})
		}
		if spec.NonResourcePath != "" {
			out.NonResource = append(out.NonResource, authorizationv1.NonResourceRule{
				Verbs:           verbs,
				NonResourceURLs: []string{spec.NonResourcePath},
			})
		}
	}
	return out, nil
}
