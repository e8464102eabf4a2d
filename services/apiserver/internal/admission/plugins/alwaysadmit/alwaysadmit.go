// Package alwaysadmit admits every request. It exists because configurations may name it.
package alwaysadmit

import (
	"context"

	"binnacle/services/apiserver/internal/admission"
)

// Name is the name of the plugin in flags and configuration.
const Name = "AlwaysAdmit"

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct{}

// Admit implements admission.Mutator.
func (Plugin) Admit(context.Context, *admission.Request) error { return nil }

// Validate implements admission.Validator.
func (Plugin) Validate(context.Context, *admission.Request) error { return nil }
