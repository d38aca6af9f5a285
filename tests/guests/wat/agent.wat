;; An agent that answers "ok", and that can do harm in every place through which it passes. Each line with nothing but
;; a name in capitals is such a place: `wat` puts instructions there.
(component
;; HEAD
  (import "checkrein:plugin/config@0.1.0" (instance $config
    (export "keys" (func (result (list string))))))
  (import "checkrein:plugin/log@0.1.0" (instance $log
    (export "write" (func (param "level" string) (param "message" string)))))

  (core module $libc
    (memory (export "memory") 1)
    (global $next (mut i32) (i32.const 8192))
    ;; Called by the host while it lowers a value.
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
;; REALLOC
      (local.set $at (i32.and
        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (local.get $at))
    ;; Called when a resource goes.
    (func (export "destructor") (param i32)
;; DESTRUCTOR
    ))
  (core instance $libc (instantiate $libc))

  (type $thing (resource (rep i32) (dtor (core func $libc "destructor"))))
  (core func $new (canon resource.new $thing))
  (core func $drop (canon resource.drop $thing))
  (core func $keys (canon lower (func $config "keys")
    (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))

  (core func $write (canon lower (func $log "write") (memory (core memory $libc "memory"))))

  (core module $main
    (import "libc" "memory" (memory 1))
    (import "host" "new" (func $new (param i32) (result i32)))
    (import "host" "drop" (func $drop (param i32)))
    (import "host" "keys" (func $keys (param i32)))
    ;; Level and message, each by address and length.
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (table $table 0 funcref)
    (data (i32.const 1024) "ok")
;; DATA
    ;; Called while the component is instantiated.
    (func $start
;; START
    )
    (start $start)
    (func (export "run") (result i32)
      (call $keys (i32.const 64))
      (call $drop (call $new (i32.const 7)))
      (i32.store8 (i32.const 128) (i32.const 0))
      (i32.store (i32.const 132) (i32.const 1024))
      (i32.store (i32.const 136) (i32.const 2))
;; RUN
      (i32.const 128))
    ;; Called when the host has read the answer.
    (func (export "post-return") (param i32)
;; POST-RETURN
    ))
  (core instance $main (instantiate $main
    (with "libc" (instance $libc))
    (with "host" (instance
      (export "new" (func $new)) (export "drop" (func $drop)) (export "keys" (func $keys))
      (export "write" (func $write))))))

;; MORE
  (func $run (result (result string (error $failure)))
    (canon lift (core func $main "run") (memory (core memory $libc "memory")) (post-return (core func $main "post-return"))))
  (export "run" (func $run)))
