package authnconfig

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"binnacle/libs/authenticator"
	"binnacle/libs/celenv"
	"binnacle/libs/oidctoken"
)

// tokenBudget limits the total cost of an issuer's expressions for one token.
const tokenBudget = 2 * celenv.PerCallLimit

// Variables of expressions.
const (
	claimsVariable = "claims"
	userVariable   = "user"
)

// environments holds the CEL environments of expressions over claims and over users.
type environments struct{ claims, user *celenv.Env }

// newEnvironments returns the CEL environments for expressions over claims and over users.
func newEnvironments() (*environments, error) {
	user := celenv.Struct{Name: "kubernetes.UserInfo", Fields: map[string]*cel.Type{
		"username": cel.StringType,
		"uid":      cel.StringType,
		"groups":   cel.ListType(cel.StringType),
		"extra":    cel.MapType(cel.StringType, cel.ListType(cel.StringType)),
	}}
	onUser, err := celenv.New(map[string]*cel.Type{userVariable: user.Type()}, user)
	if err != nil {
		return nil, err
	}
	onClaims, err := celenv.New(map[string]*cel.Type{claimsVariable: cel.MapType(cel.StringType, cel.DynType)})
	if err != nil {
		return nil, err
	}
	return &environments{claims: onClaims, user: onUser}, nil
}

// rules map claims to a user. They implement oidctoken.Rules.
type rules struct {
	mappings    ClaimMappings
	required    []ClaimValidationRule
	claimChecks []boolRule
	// Expressions of the mappings; nil if a claim is used.
	username, groups, uid *celenv.Program
	extra                 []extraProgram
	userChecks            []boolRule
}

// boolRule is an expression that must be true.
type boolRule struct {
	program *celenv.Program
	message string
}

// extraProgram is the expression for one key of a user's extra fields.
type extraProgram struct {
	key     string
	program *celenv.Program
}

// checksEmail reports whether an expression checks that the email address is verified.
func (r *rules) checksEmail() bool {
	programs := []*celenv.Program{r.username}
	for _, extra := range r.extra {
		programs = append(programs, extra.program)
	}
	for _, check := range r.claimChecks {
		programs = append(programs, check.program)
	}
	for _, program := range programs {
		if program.ReadsField(claimsVariable, "email_verified") {
			return true
		}
	}
	return false
}

// evaluation is the state that the expressions for one token share.
type evaluation struct {
	ctx       context.Context
	variables map[string]any
	budget    *celenv.Budget
}

// DistributedClaim implements oidctoken.Rules.
func (r *rules) DistributedClaim() string { return r.mappings.Groups.Claim }

// User implements oidctoken.Rules.
func (r *rules) User(ctx context.Context, claims oidctoken.Claims) (authenticator.User, error) {
	e := &evaluation{
		ctx:       ctx,
		variables: map[string]any{claimsVariable: map[string]any(claims)},
		budget:    celenv.NewBudget(tokenBudget),
	}
	for _, rule := range r.required {
		if err := claims.Require(rule.Claim, rule.RequiredValue); err != nil {
			return authenticator.User{}, fmt.Errorf("claim validation rule: %w", err)
		}
	}
	if err := e.requireAll(r.claimChecks); err != nil {
		return authenticator.User{}, fmt.Errorf("claim validation rule: %w", err)
	}
	user, err := r.mapUser(e, claims)
	if err != nil {
		return authenticator.User{}, err
	}
	e.variables = map[string]any{userVariable: userValue(user)}
	if err := e.requireAll(r.userChecks); err != nil {
		return authenticator.User{}, fmt.Errorf("user validation rule: %w", err)
	}
	return user, nil
}

// mapUser returns the user that the claims map to.
func (r *rules) mapUser(e *evaluation, claims oidctoken.Claims) (user authenticator.User, err error) {
	if user.Name, err = r.mapName(e, claims); err != nil {
		return user, err
	}
	switch {
	case r.groups != nil:
		if user.Groups, err = e.evalStrings(r.groups); err != nil {
			return user, fmt.Errorf("groups: %w", err)
		}
	case r.mappings.Groups.Claim != "":
		if user.Groups, err = claims.Groups(r.mappings.Groups.Claim, *r.mappings.Groups.Prefix); err != nil {
			return user, err
		}
	}
	switch {
	case r.uid != nil:
		if user.UID, err = e.evalString(r.uid); err != nil {
			return user, fmt.Errorf("uid: %w", err)
		}
	case r.mappings.UID.Claim != "":
		if user.UID, err = claims.String(r.mappings.UID.Claim); err != nil {
			return user, fmt.Errorf("uid: %w", err)
		}
	}
	user.Extra = claims.Extra()
	for _, extra := range r.extra {
		values, err := e.evalStrings(extra.program)
		if err != nil {
			return user, fmt.Errorf("extra %q: %w", extra.key, err)
		}
		if len(values) == 0 {
			continue
		}
		if user.Extra == nil {
			user.Extra = map[string][]string{}
		}
		user.Extra[extra.key] = values
	}
	return user, nil
}

// mapName returns the username that the claims map to.
func (r *rules) mapName(e *evaluation, claims oidctoken.Claims) (string, error) {
	if r.username == nil {
		return claims.Username(r.mappings.Username.Claim, *r.mappings.Username.Prefix)
	}
	name, err := e.evalString(r.username)
	if err != nil {
		return "", fmt.Errorf("username: %w", err)
	}
	if name == "" {
		return "", errors.New("username: expression yields an empty string")
	}
	return name, nil
}

// requireAll returns an error unless all expressions are true.
func (e *evaluation) requireAll(checks []boolRule) error {
	for _, check := range checks {
		ok, err := check.program.Bool(e.ctx, e.variables, e.budget)
		if err != nil {
			return fmt.Errorf("expression '%s': %w", check.program.Expression(), err)
		}
		if !ok && check.message != "" {
			return errors.New(check.message)
		}
		if !ok {
			return fmt.Errorf("expression '%s' is false", check.program.Expression())
		}
	}
	return nil
}

func (e *evaluation) evalString(program *celenv.Program) (string, error) {
	value, err := program.Eval(e.ctx, e.variables, e.budget)
	if err != nil {
		return "", err
	}
	text, ok := value.(types.String)
	if !ok {
		return "", fmt.Errorf("expression yields %s, not a string", value.Type().TypeName())
	}
	return string(text), nil
}

// evalStrings returns the strings of a value: the elements of a list, a single string, or none for
// null, an empty list and the empty string.
func (e *evaluation) evalStrings(program *celenv.Program) ([]string, error) {
	value, err := program.Eval(e.ctx, e.variables, e.budget)
	if err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		if v == "" {
			return nil, nil
		}
		return []string{string(v)}, nil
	case traits.Lister:
		return stringList(v)
	}
	return nil, fmt.Errorf("expression yields %s, neither a string nor a list of strings", value.Type().TypeName())
}

// stringList returns a CEL list of strings as a Go slice.
func stringList(list ref.Val) ([]string, error) {
	var out []string
	for elements := list.(traits.Lister).Iterator(); elements.HasNext() == types.True; {
		element := elements.Next()
		text, ok := element.(types.String)
		if !ok {
			return nil, fmt.Errorf("expression yields a list with %s in it, not a string", element.Type().TypeName())
		}
		out = append(out, string(text))
	}
	return out, nil
}

// userValue returns the user for expressions, with all fields set.
func userValue(user authenticator.User) map[string]any {
	groups, extra := user.Groups, user.Extra
	if groups == nil {
		groups = []string{}
	}
	if extra == nil {
		extra = map[string][]string{}
	}
	return map[string]any{"username": user.Name, "uid": user.UID, "groups": groups, "extra": extra}
}
