package celenv

import (
	"slices"
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
	return &authzCheck{opaque: opaque{kind: AuthorizerType}, attributes: authorizer.Attributes{User: user}, decide: decide}
}

// NewResourceCheck returns a value that checks what a user may do with a resource. The resource is
// given by the Group, ResourceName, Subresource, Namespace and Name of attributes.
func NewResourceCheck(attributes *authorizer.Attributes, decide Decide) ref.Val {
	c := &authzCheck{opaque: opaque{kind: ResourceCheckType}, attributes: *attributes, decide: decide}
	c.attributes.Resource = true
	c.attributes.Version = "*"
	return c
}

// authzCheck is an authorization check that expressions build step by step. Its type says which
// steps can follow.
type authzCheck struct {
	opaque
	attributes authorizer.Attributes
	decide     Decide
}

// ConvertToType implements ref.Val.
func (c *authzCheck) ConvertToType(to ref.Type) ref.Val { return c.convert(c, to) }

// Value implements ref.Val.
func (c *authzCheck) Value() any { return c.attributes }

// Equal implements ref.Val. Checks cannot be compared.
func (*authzCheck) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// checkResult is the result of a check, which expressions see as a decision.
type checkResult struct {
	opaque
	decision authorizer.Decision
	reason   string
	err      error
}

// ConvertToType implements ref.Val.
func (v *checkResult) ConvertToType(to ref.Type) ref.Val { return v.convert(v, to) }

// Value implements ref.Val.
func (v *checkResult) Value() any { return v.decision }

// Equal implements ref.Val. Results cannot be compared.
func (*checkResult) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// authzLibrary provides the functions of authorizers, checks and decisions.
func authzLibrary() []cel.EnvOption {
	return slices.Concat(
		[]cel.EnvOption{cel.Types(AuthorizerType, ResourceCheckType, groupCheckType, pathCheckType, decisionType)},
		startFunctions(),
		restrictFunctions(),
		checkFunctions(),
		decisionFunctions(),
	)
}

// startFunctions returns the functions that select the kind of a check.
func startFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("path", derivedCheck("authorizer_path", AuthorizerType, pathCheckType,
			func(a *authorizer.Attributes, path string) string {
				a.Path = path
				return requireNonEmpty("path", path)
			})),
		cel.Function("group", derivedCheck("authorizer_group", AuthorizerType, groupCheckType,
			func(a *authorizer.Attributes, group string) string {
				a.Group = group
				return ""
			})),
		cel.Function("serviceAccount",
			cel.MemberOverload("authorizer_serviceaccount", []*cel.Type{AuthorizerType, cel.StringType, cel.StringType},
				AuthorizerType, cel.FunctionBinding(asServiceAccount))),
		cel.Function("resource",
			derivedCheck("groupcheck_resource", groupCheckType, ResourceCheckType,
				func(a *authorizer.Attributes, resource string) string {
					a.Resource = true
					a.Version = "*"
					a.ResourceName = resource
					return requireNonEmpty("resource", resource)
				})),
	}
}

// restrictFunctions returns the functions that restrict a check of a resource.
func restrictFunctions() []cel.EnvOption {
	restrict := func(name, overload string, set func(a *authorizer.Attributes, value string)) cel.EnvOption {
		return cel.Function(name,
			derivedCheck(overload, ResourceCheckType, ResourceCheckType, func(a *authorizer.Attributes, value string) string {
				set(a, value)
				return ""
			}))
	}
	return []cel.EnvOption{
		restrict("subresource", "resourcecheck_subresource",
			func(a *authorizer.Attributes, value string) { a.Subresource = value }),
		restrict("namespace", "resourcecheck_namespace", func(a *authorizer.Attributes, value string) { a.Namespace = value }),
		restrict("name", "resourcecheck_name", func(a *authorizer.Attributes, value string) { a.Name = value }),
		restrict("fieldSelector", "authorizer_fieldselector", selectFields),
		restrict("labelSelector", "authorizer_labelselector", selectLabels),
	}
}

// checkFunctions returns the functions that perform a check for a verb.
func checkFunctions() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function("check",
			cel.MemberOverload("pathcheck_check", []*cel.Type{pathCheckType, cel.StringType}, decisionType,
				cel.BinaryBinding(performCheck)),
			cel.MemberOverload("resourcecheck_check", []*cel.Type{ResourceCheckType, cel.StringType}, decisionType,
				cel.BinaryBinding(performCheck))),
	}
}

// decisionFunctions returns the functions that read a decision.
func decisionFunctions() []cel.EnvOption {
	resultField := func(name, overload string, out *cel.Type, get func(*checkResult) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{decisionType}, out, unary(get)))
	}
	return []cel.EnvOption{
		resultField("errored", "decision_errored", cel.BoolType, func(v *checkResult) ref.Val {
			return types.Bool(v.err != nil)
		}),
		resultField("error", "decision_error", cel.StringType, func(v *checkResult) ref.Val {
			if v.err == nil {
				return types.String("")
			}
			return types.String(v.err.Error())
		}),
		resultField("allowed", "decision_allowed", cel.BoolType, func(v *checkResult) ref.Val {
			return types.Bool(v.decision == authorizer.Allow)
		}),
		resultField("reason", "decision_reason", cel.StringType, func(v *checkResult) ref.Val { return types.String(v.reason) }),
	}
}

// derivedCheck returns a member function that derives one check from another. set stores the
// argument, and returns an error text if the argument is invalid.
func derivedCheck(overload string, from, to *cel.Type,
	set func(a *authorizer.Attributes, value string) (problem string)) cel.FunctionOpt {
	return cel.MemberOverload(overload, []*cel.Type{from, cel.StringType}, to, cel.BinaryBinding(func(v, text ref.Val) ref.Val {
		c, ok := v.(*authzCheck)
		value, isText := text.(types.String)
		if !ok || !isText {
			return types.MaybeNoSuchOverloadErr(v)
		}
		next := &authzCheck{opaque: opaque{kind: to}, attributes: c.attributes, decide: c.decide}
		if problem := set(&next.attributes, string(value)); problem != "" {
			return types.NewErr("%s", problem)
		}
		return next
	}))
}

// requireNonEmpty returns an error text if an argument is blank, else "".
func requireNonEmpty(argument, value string) string {
	if strings.TrimSpace(value) == "" {
		return argument + " must not be empty"
	}
	return ""
}

// asServiceAccount returns an authorizer that checks what a service account may do.
func asServiceAccount(args ...ref.Val) ref.Val {
	check, ok := args[0].(*authzCheck)
	namespace, namespaceIsText := args[1].(types.String)
	name, nameIsText := args[2].(types.String)
	switch {
	case !ok || !namespaceIsText || !nameIsText:
		return types.MaybeNoSuchOverloadErr(args[0])
	case validation.ValidateServiceAccountName(string(name), false) != nil:
		return types.NewErr("Invalid service account name")
	case validation.ValidateNamespaceName(string(namespace), false) != nil:
		return types.NewErr("Invalid service account namespace")
	}
	return NewAuthorizer(&authorizer.User{
		Name:   satoken.Username(string(namespace), string(name)),
		Groups: satoken.Groups(string(namespace)),
	}, check.decide)
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

// performCheck performs a check for a verb and returns a checkResult.
func performCheck(v, verb ref.Val) ref.Val {
	c, ok := v.(*authzCheck)
	text, isText := verb.(types.String)
	if !ok || !isText {
		return types.MaybeNoSuchOverloadErr(v)
	}
	attributes := c.attributes
	attributes.Verb = string(text)
	out := &checkResult{opaque: opaque{kind: decisionType}}
	out.decision, out.reason, out.err = c.decide(&attributes)
	return out
}
