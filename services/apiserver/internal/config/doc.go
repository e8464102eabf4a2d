// Package config defines every flag of the API server, with its default, help and validation.
//
// A file holds the flags of one section of --help. Options is parsed (AddFlags), completed
// (Complete) and validated (Validate) by libs/options. Afterwards it is a value that does not
// change: package build passes its parts to constructors. Packages below define plain structs for
// their options, such as fanout.Options, and config binds flags to the fields.
package config
