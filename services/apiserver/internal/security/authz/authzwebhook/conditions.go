package authzwebhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	authorizationv1 "k8s.io/api/authorization/v1"

	"binnacle/libs/celenv"
)

// conditionsBudget bounds the total cost of the conditions of one request.
const conditionsBudget = 2_500_000

// Compiler compiles match conditions: expressions over the variable request, which is the spec of a
// SubjectAccessReview.
type Compiler struct{ environment *celenv.Env }

// NewCompiler returns a compiler.
func NewCompiler() (*Compiler, error) {
	stringType := cel.StringType
	stringList := cel.ListType(cel.StringType)
	requirement := celenv.Struct{
		Name:   "kubernetes.SelectorRequirement",
		Fields: map[string]*cel.Type{"key": stringType, "operator": stringType, "values": stringList},
	}
	selector := celenv.Struct{
		Name: "kubernetes.SelectorAttributes",
		Fields: map[string]*cel.Type{
			"rawSelector": stringType, "requirements": cel.ListType(requirement.Type()),
		},
	}
	resource := celenv.Struct{
		Name: "kubernetes.ResourceAttributes",
		Fields: map[string]*cel.Type{
			"namespace":     stringType,
			"verb":          stringType,
			"group":         stringType,
			"version":       stringType,
			"resource":      stringType,
			"subresource":   stringType,
			"name":          stringType,
			"fieldSelector": selector.Type(),
			"labelSelector": selector.Type(),
		},
	}
	path := celenv.Struct{
		Name:   "kubernetes.NonResourceAttributes",
		Fields: map[string]*cel.Type{"path": stringType, "verb": stringType},
	}
	spec := celenv.Struct{
		Name: "kubernetes.SubjectAccessReviewSpec",
		Fields: map[string]*cel.Type{
			"resourceAttributes": resource.Type(), "nonResourceAttributes": path.Type(),
			"user": stringType, "groups": stringList, "uid": stringType, "extra": cel.MapType(stringType, stringList),
		},
	}
	env, err := celenv.New(map[string]*cel.Type{"request": spec.Type()}, spec, resource, path, selector, requirement)
	if err != nil {
		return nil, err
	}
	return &Compiler{environment: env}, nil
}

// Check returns an error if an expression is invalid.
func (c *Compiler) Check(expression string) error {
	_, err := c.environment.Compile(expression, cel.BoolType)
	return err
}

// Compile returns the conditions of a list of expressions.
func (c *Compiler) Compile(expressions []string) (*Conditions, error) {
	out := &Conditions{}
	for _, e := range expressions {
		p, err := c.environment.Compile(e, cel.BoolType)
		if err != nil {
			return nil, fmt.Errorf("match condition %q: %w", e, err)
		}
		out.programs = append(out.programs, p)
	}
	return out, nil
}

// Conditions holds the conditions of one webhook.
type Conditions struct{ programs []*celenv.Program }

// matchAll reports whether all conditions are true. One false condition decides, even if other ones
// fail.
func (c *Conditions) matchAll(
	ctx context.Context,
	spec *authorizationv1.SubjectAccessReviewSpec,
	metrics *Metrics,
	name string,
) (bool, error) {
	start := time.Now()
	defer func() { metrics.conditionSeconds.WithLabelValues(typeName, name).Observe(time.Since(start).Seconds()) }()
	variables := map[string]any{"request": specValue(spec)}
	budget := celenv.NewBudget(conditionsBudget)
	var errs []error
	for _, p := range c.programs {
		ok, err := p.Bool(ctx, variables, budget)
		if err != nil {
			metrics.conditionErrors.WithLabelValues(typeName, name).Inc()
			errs = append(errs, fmt.Errorf("match condition %q: %w", p.Expression(), err))
			continue
		}
		if !ok {
			metrics.conditionExclusions.WithLabelValues(typeName, name).Inc()
			return false, nil
		}
	}
	return len(errs) == 0, errors.Join(errs...)
}

// specValue returns the value of the variable request. Absent fields are unset. The raw text of a
// selector is omitted.
func specValue(spec *authorizationv1.SubjectAccessReviewSpec) map[string]any {
	out := map[string]any{"user": spec.User, "groups": spec.Groups, "uid": spec.UID}
	if len(spec.Extra) > 0 {
		extra := make(map[string][]string, len(spec.Extra))
		for k, v := range spec.Extra {
			extra[k] = v
		}
		out["extra"] = extra
	}
	if resource := spec.ResourceAttributes; resource != nil {
		attrs := map[string]any{
			"namespace": resource.Namespace, "verb": resource.Verb, "group": resource.Group, "version": resource.Version,
			"resource": resource.Resource, "subresource": resource.Subresource, "name": resource.Name,
		}
		var requirements []any
		add := func(key, operator string, values []string) {
			requirements = append(requirements, map[string]any{"key": key, "operator": operator, "values": values})
		}
		if s := resource.FieldSelector; s != nil {
			for _, r := range s.Requirements {
				add(r.Key, string(r.Operator), r.Values)
			}
			attrs["fieldSelector"] = map[string]any{"requirements": requirements}
		}
		if s := resource.LabelSelector; s != nil {
			requirements = nil
			for _, r := range s.Requirements {
				add(r.Key, string(r.Operator), r.Values)
			}
			attrs["labelSelector"] = map[string]any{"requirements": requirements}
		}
		out["resourceAttributes"] = attrs
	}
	if nonResource := spec.NonResourceAttributes; nonResource != nil {
		out["nonResourceAttributes"] = map[string]any{"path": nonResource.Path, "verb": nonResource.Verb}
	}
	return out
}
