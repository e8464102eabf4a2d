// Package admission implements the chain of admission plugins. Plugins run after authorization and
// before storage. They may change an object (Mutator), reject it (Validator), or reserve quota for
// it (Reserver). Each plugin is a package below plugins, which lists their names in their fixed
// order. Package build constructs them.
//
// A Request passes the phases of the chain in this order:
//
//	Mutate    in order; a second time if a plugin calls RequestReinvocation because
//	          of later changes
//	Validate  in order, on the object as it will be stored
//	Reserve   in order; reservations are committed or rolled back after the write,
//	          and made again when the write is retried
//
// The caller passes the object in its served form.
package admission
