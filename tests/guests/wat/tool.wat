;; A component with one tool, `it`, which answers "ok". Each line with nothing but a name in capitals is a place where
;; `wat` puts instructions.
(component
;; HEAD
  (core module $main
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 8192))
    (data (i32.const 1024) "ok")
    (data (i32.const 1040) "it")
    (data (i32.const 1056) "{\"type\":\"object\"}")
    (func $start
;; START
    )
    (start $start)
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
;; REALLOC
      (local.set $at (i32.and
        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (local.get $at))
    ;; A list of one record: name, description, schema, no hints.
    (func (export "describe") (result i32)
      (i32.store (i32.const 128) (i32.const 256))
      (i32.store (i32.const 132) (i32.const 1))
      (i32.store (i32.const 256) (i32.const 1040))
      (i32.store (i32.const 260) (i32.const 2))
      (i32.store (i32.const 264) (i32.const 1040))
      (i32.store (i32.const 268) (i32.const 2))
      (i32.store (i32.const 272) (i32.const 1056))
      (i32.store (i32.const 276) (i32.const 17))
      (i32.store (i32.const 280) (i32.const 0))
      (i32.store (i32.const 284) (i32.const 0))
;; DESCRIBE
      (i32.const 128))
    (func (export "call") (param i32 i32 i32 i32) (result i32)
      (i32.store8 (i32.const 128) (i32.const 0))
      (i32.store (i32.const 132) (i32.const 1024))
      (i32.store (i32.const 136) (i32.const 2))
;; CALL
      (i32.const 128))
    (func (export "post-return") (param i32)
;; POST-RETURN
    ))
  (core instance $main (instantiate $main))

  (func $describe (result (list $tool-spec))
    (canon lift (core func $main "describe") (memory (core memory $main "memory"))))
  (func $call (param "name" string) (param "arguments" string) (result (result string (error $failure)))
    (canon lift (core func $main "call") (memory (core memory $main "memory")) (realloc (core func $main "realloc"))
      (post-return (core func $main "post-return"))))
  (export "describe" (func $describe))
  (export "call" (func $call)))
