package celenv

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/libs/authorizer"
	"binnacle/libs/satoken"
)

// Types of the values with which expressions check authorization.
var (
	AuthorizerType    = cel.ObjectType("kubernetes.authorization.Authorizer")
	ResourceCheckType = cel.ObjectType("kubernetes.authorization.ResourceCheck")
	groupCheckType    = cel.ObjectType("kubernetes.authorization.GroupCheck")
	pathCheckType     = cel.ObjectType("kubernetes.authorization.PathCheck")
	decisionType      = cel.ObjectType("kubernetes.authorization.Decision")
)

// Decide reports whether a request with the given attributes is authorized, and why.
type Decide func(*authorizer.Attributes) (authorizer.Decision, string, error)

// NewAuthorizer returns a value with which expressions check what user may do.
func NewAuthorizer(user *authorizer.User, decide Decide) ref.Val {
	return &check{opaque: opaque{kind: AuthorizerType}, what: authorizer.Attributes{User: user}, decide: decide}
}

// NewResourceCheck returns a value that checks what a user may do with a resource. The resource is
// given by the Group, Resource, Subresource, Namespace and Name of what.
func NewResourceCheck(what *authorizer.Attributes, decide Decide) ref.Val {
	c := &check{opaque: opaque{kind: ResourceCheckType}, what: *what, decide: decide}
	c.what.Resource = true
	c.what.Version = "*"
	return c
}

// check is an authorization check that expressions build step by step. Its type says which steps
// can follow.
type check struct {
	opaque
	what   authorizer.Attributes
	decide Decide
}

// ConvertToType implements ref.Val.
func (c *check) ConvertToType(to ref.Type) ref.Val { return c.convert(c, to) }

// Value implements ref.Val.
func (c *check) Value() any { return c.what }

// Equal implements ref.Val. Checks cannot be compared.
func (*check) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// verdict is the result of a check.
type verdict struct {
	opaque
	decision authorizer.Decision
	reason   string
	err      error
}

// ConvertToType implements ref.Val.
func (v *verdict) ConvertToType(to ref.Type) ref.Val { return v.convert(v, to) }

// Value implements ref.Val.
func (v *verdict) Value() any { return v.decision }

// Equal implements ref.Val. Verdicts cannot be compared.
func (*verdict) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// authzLibrary provides the functions of authorizers, checks and decisions.
type authzLibrary struct{}

// CompileOptions implements cel.Library.
func (authzLibrary) CompileOptions() []cel.EnvOption {
	narrow := func(name, overload string, set func(a *authorizer.Attributes, value string)) cel.EnvOption {
		return cel.Function(name, step(overload, ResourceCheckType, ResourceCheckType, func(a *authorizer.Attributes, value string) string {
			set(a, value)
			return ""
		}))
	}
	tell := func(name, overload string, out *cel.Type, of func(*verdict) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{decisionType}, out, cel.UnaryBinding(func(v ref.Val) ref.Val {
			d, ok := v.(*verdict)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return of(d)
		})))
	}
	return []cel.EnvOption{
		cel.Types(AuthorizerType, ResourceCheckType, groupCheckType, pathCheckType, decisionType),
		cel.Function("path", step("authorizer_path", AuthorizerType, pathCheckType, func(a *authorizer.Attributes, path string) string {
			a.Path = path
			return wrongIfEmpty("path", path)
		})),
		cel.Function("group", step("authorizer_group", AuthorizerType, groupCheckType, func(a *authorizer.Attributes, group string) string {
			a.Group = group
			return ""
		})),
		cel.Function("serviceAccount", cel.MemberOverload("authorizer_serviceaccount", []*cel.Type{AuthorizerType, cel.StringType, cel.StringType},
			AuthorizerType, cel.FunctionBinding(asServiceAccount))),
		cel.Function("resource", step("groupcheck_resource", groupCheckType, ResourceCheckType, func(a *authorizer.Attributes, resource string) string {
			a.Resource = true
			a.Version = "*"
			a.ResourceName = resource
			return wrongIfEmpty("resource", resource)
		})),
		narrow("subresource", "resourcecheck_subresource", func(a *authorizer.Attributes, value string) { a.Subresource = value }),
		narrow("namespace", "resourcecheck_namespace", func(a *authorizer.Attributes, value string) { a.Namespace = value }),
		narrow("name", "resourcecheck_name", func(a *authorizer.Attributes, value string) { a.Name = value }),
		narrow("fieldSelector", "authorizer_fieldselector", selectFields),
		narrow("labelSelector", "authorizer_labelselector", selectLabels),
		cel.Function("check",
			cel.MemberOverload("pathcheck_check", []*cel.Type{pathCheckType, cel.StringType}, decisionType, cel.BinaryBinding(ask)),
			cel.MemberOverload("resourcecheck_check", []*cel.Type{ResourceCheckType, cel.StringType}, decisionType, cel.BinaryBinding(ask))),
		tell("errored", "decision_errored", cel.BoolType, func(v *verdict) ref.Val { return types.Bool(v.err != nil) }),
		tell("error", "decision_error", cel.StringType, func(v *verdict) ref.Val {
			if v.err == nil {
				return types.String("")
			}
			return types.String(v.err.Error())
		}),
		tell("allowed", "decision_allowed", cel.BoolType, func(v *verdict) ref.Val { return types.Bool(v.decision == authorizer.Allow) }),
		tell("reason", "decision_reason", cel.StringType, func(v *verdict) ref.Val { return types.String(v.reason) }),
	}
}

// ProgramOptions implements cel.Library.
func (authzLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// step returns a member function that derives one check from another. set stores the argument, and
// returns an error text if the argument is invalid.
func step(overload string, from, to *cel.Type, set func(a *authorizer.Attributes, value string) (wrong string)) cel.FunctionOpt {
	return cel.MemberOverload(overload, []*cel.Type{from, cel.StringType}, to, cel.BinaryBinding(func(v, text ref.Val) ref.Val {
		c, ok := v.(*check)
		value, isText := text.(types.String)
		if !ok || !isText {
			return types.MaybeNoSuchOverloadErr(v)
		}
		next := &check{opaque: opaque{kind: to}, what: c.what, decide: c.decide}
		if wrong := set(&next.what, string(value)); wrong != "" {
			return types.NewErr("%s", wrong)
		}
		return next
	}))
}

func wrongIfEmpty(what, value string) string {
	if strings.TrimSpace(value) == "" {
		return what + " must not be empty"
	}
	return ""
}

// asServiceAccount returns an authorizer that checks the same for a service account.
func asServiceAccount(args ...ref.Val) ref.Val {
	c, ok := args[0].(*check)
	namespace, ok1 := args[1].(types.String)
	name, ok2 := args[2].(types.String)
	switch {
	case !ok || !ok1 || !ok2:
		return types.MaybeNoSuchOverloadErr(args[0])
	case validation.ValidateServiceAccountName(string(name), false) != nil:
		return types.NewErr("Invalid service account name")
	case validation.ValidateNamespaceName(string(namespace), false) != nil:
		return types.NewErr("Invalid service account namespace")
	}
	return NewAuthorizer(&authorizer.User{
		Name:   satoken.Username(string(namespace), string(name)),
		Groups: satoken.Groups(string(namespace)),
	}, c.decide)
}

// selectFields drops a selector that cannot be parsed. The check then asks for broader access.
func selectFields(a *authorizer.Attributes, text string) {
	a.FieldSelector = nil
	if selector, err := fields.ParseSelector(text); err == nil && text != "" {
		a.FieldSelector = selector.Requirements()
	}
}

// selectLabels drops a selector that cannot be parsed. The check then asks for broader access.
func selectLabels(a *authorizer.Attributes, text string) {
	a.LabelSelector = nil
	if requirements, err := labels.ParseToRequirements(text); err == nil {
		a.LabelSelector = requirements
	}
}

// ask performs a check for a verb and returns the verdict.
func ask(v, verb ref.Val) ref.Val {
	c, ok := v.(*check)
	text, isText := verb.(types.String)
	if !ok || !isText {
		return types.MaybeNoSuchOverloadErr(v)
	}
	what := c.what
	what.Verb = string(text)
	out := &verdict{opaque: opaque{kind: decisionType}}
	out.decision, out.reason, out.err = c.decide(&what)
	return out
}
