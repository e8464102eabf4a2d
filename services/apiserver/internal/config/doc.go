// Package config defines every flag of the API server, with its default, help and validation.
//
// Each file is about one section of --help. libs/options calls AddFlags, Complete and Validate of
// Options, in this order. Afterwards the Options do not change, and package build passes their
// parts to constructors. Some packages define plain structs for their options, such as
// fanout.Options, and the flags are bound to their fields here.
package config
