// Package celenv builds environments for CEL expressions in configuration and definitions.
// Expressions see the claims and the user of a token, a request to authorize, or a custom resource.
// The caller names the variables and their types. The functions are those that such expressions
// have in Kubernetes 1.33: functions of strings, lists, sets, regular expressions, URLs,
// quantities, addresses and networks, named formats and optional values.
//
// A BaseEnv has the functions; an Env also has the variables. An Env, and the Programs and Runners
// that it creates, are immutable and safe for concurrent use.
//
// Three bounds limit an evaluation: PerCallLimit units of cost for each evaluation, a Budget that
// several evaluations share, and the end of the context. The actual cost of an evaluation (meter)
// and the estimated maximum cost of an expression (Costs) are those of Kubernetes, because they
// decide which rules a definition may have.
//
// The callers are package authnconfig, the match conditions of webhooks, the rules of custom
// resources and admission policies.
package celenv
